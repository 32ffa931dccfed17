// The small kernels of a decode step: what lies between the products of a Llama-shaped layer. f16,
// arithmetic in f32. All pointers are device memory.

#ifndef VARVE_CUDA_STEP_STEP_KERNELS_H_
#define VARVE_CUDA_STEP_STEP_KERNELS_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace varve::cuda::step {

// Values between -scale and scale that depend on `seed`.
void FillRandom(__half* values, size_t count, float scale, uint32_t seed, cudaStream_t stream);

// out[row] = x[row] / rms(x[row]) * weight; rows of `dim` values.
void RmsNorm(const __half* x, const __half* weight, int rows, int dim, __half* out,
             cudaStream_t stream);

// qkv [rows][heads + 2 * kv_heads][head_dim]: queries are rotated into `queries`
// [rows][heads][head_dim], keys in place.
void RotateQueriesAndKeys(__half* qkv, int rows, int heads, int kv_heads, int head_dim,
                          int position, __half* queries, cudaStream_t stream);

// out[row][i] = silu(gate_up[row][i]) * gate_up[row][dim + i].
void GateUp(const __half* gate_up, int rows, int dim, __half* out, cudaStream_t stream);

}  // namespace varve::cuda::step

#endif  // VARVE_CUDA_STEP_STEP_KERNELS_H_
