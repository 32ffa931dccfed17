// The small kernels of a decoder layer: what lies between its products. The residual stream and all
// arithmetic are f32; what a product reads is rounded to 16 bits at the end.
//
// Rounding to f16 keeps to its range: a larger value becomes ±65504, never infinity, which would
// spoil the whole row behind it. NaN stays NaN. All pointers are device memory; a call is one
// launch and waits for nothing.

#ifndef VARVE_CUDA_LAYERS_LAYER_KERNELS_H_
#define VARVE_CUDA_LAYERS_LAYER_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/device_status.h"
#include "cuda/layers/half_type.h"

namespace varve::cuda {

// out[t] = table[tokens[t]] * scale.
struct EmbedCall {
  const int32_t* tokens = nullptr;  // [num_tokens], rows of the table
  int num_tokens = 0;
  HalfType type = HalfType::kF16;
  const void* table = nullptr;  // [vocabulary, width]
  int width = 0;
  float scale = 1.0f;
  float* out = nullptr;  // [num_tokens, width]
};
DeviceStatus Embed(const EmbedCall& call, cudaStream_t stream);

// y[row] = x[row] / sqrt(mean(x[row]^2) + epsilon) * weight. With `sum`, y is added to it; without,
// it is rounded into `out`.
struct NormCall {
  const float* x = nullptr;       // [rows, dim]
  const float* weight = nullptr;  // [dim]
  int rows = 0;
  int dim = 0;
  float epsilon = 0.0f;
  float* sum = nullptr;  // [rows, dim]
  HalfType type = HalfType::kF16;
  void* out = nullptr;  // [rows, dim]
};
DeviceStatus RmsNorm(const NormCall& call, cudaStream_t stream);

// Queries, keys and values of a layer, from one product: biases, a norm of each query and key head,
// and rotary positions, where the model has them.
struct RotateCall {
  const float* qkv = nullptr;         // [rows, heads + 2 * kv_heads, head_dim]
  const float* bias = nullptr;        // [heads + 2 * kv_heads, head_dim], or null
  const float* query_norm = nullptr;  // [head_dim], or null; both or none
  const float* key_norm = nullptr;    // [head_dim]
  float epsilon = 0.0f;               // of the norms
  const float* cos_sin = nullptr;     // [rows, 2, pairs]: cosines, then sines
  int pairs = 0;                      // rotated, at most head_dim / 2; the rest passes through
  bool interleaved = false;           // pairs (0,1) (2,3) …, not (0,pairs) (1,pairs+1) …
  int rows = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float* queries = nullptr;  // [rows, heads, head_dim]
  float* keys = nullptr;     // [rows, kv_heads, head_dim]
  float* values = nullptr;   // [rows, kv_heads, head_dim]
};
DeviceStatus SplitAndRotate(const RotateCall& call, cudaStream_t stream);

// out[row][i] = activation(gate_up[row][i]) * gate_up[row][dim + i]. silu(x) = x / (1 + e^-x);
// gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GateCall {
  const float* gate_up = nullptr;  // [rows, 2, dim]
  int rows = 0;
  int dim = 0;
  bool gelu = false;
  HalfType type = HalfType::kF16;
  void* out = nullptr;  // [rows, dim]
};
DeviceStatus GateUp(const GateCall& call, cudaStream_t stream);

// x[row] += bias; rows of `dim` values.
DeviceStatus AddBias(float* x, const float* bias, int rows, int dim, cudaStream_t stream);

// x = cap * tanh(x / cap).
DeviceStatus SoftCap(float* x, int64_t count, float cap, cudaStream_t stream);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_LAYERS_LAYER_KERNELS_H_
