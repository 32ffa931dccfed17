// DeviceWeights: the weights of a Llama-family model in the memory of a GPU.
//
// Matrices of f16 and bf16 lie there as they are stored; all others are decoded on the way and
// rounded to f16. A decoded weight beyond f16's range becomes ±65504, which no trained model comes
// near. Matrices that have the same input are one: a product for q, k and v, and one for gate and
// up. Norms and biases are f32. Immutable after it was made; owns the memory.

#ifndef VARVE_RUNTIME_CUDA_DEVICE_WEIGHTS_H_
#define VARVE_RUNTIME_CUDA_DEVICE_WEIGHTS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/layers/half_type.h"
#include "runtime/llama/llama_weights.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

struct DeviceMatrix {
  cuda::HalfType type = cuda::HalfType::kF16;
  const void* data = nullptr;  // [outputs, inputs], aligned to 256 bytes
  int outputs = 0;
  int inputs = 0;

  uint64_t bytes() const { return uint64_t{2} * static_cast<uint64_t>(outputs) * inputs; }
};

// One layer; q = num_heads * head_dim, kv = num_kv_heads * head_dim. Vectors that the model does
// not have are null.
struct DeviceLayer {
  const float* attention_norm = nullptr;       // [width]
  DeviceMatrix qkv;                            // [q + 2 * kv, width]
  const float* qkv_bias = nullptr;             // [q + 2 * kv]
  const float* query_norm = nullptr;           // [head_dim]
  const float* key_norm = nullptr;             // [head_dim]
  DeviceMatrix attention_output;               // [width, q]
  const float* output_bias = nullptr;          // [width]
  const float* attention_post_norm = nullptr;  // [width]
  const float* ffn_norm = nullptr;             // [width]
  DeviceMatrix gate_up;                        // [2 * ffn_width, width]
  DeviceMatrix ffn_down;                       // [width, ffn_width]
  const float* ffn_post_norm = nullptr;        // [width]
};

class DeviceWeights {
 public:
  // Copies the weights to the current device in pieces: the host needs a few MiB for that, whatever
  // the model. Decoding is spread over the executor. Returns when all is there. kOutOfMemory names
  // the bytes that the device has not.
  static Result<std::unique_ptr<const DeviceWeights>> Upload(const LlamaWeights& weights,
                                                             Executor& executor,
                                                             cudaStream_t stream);
  ~DeviceWeights();
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  const DeviceMatrix& token_embedding() const { return token_embedding_; }
  const std::vector<DeviceLayer>& layers() const { return layers_; }
  const float* output_norm() const { return output_norm_; }
  const DeviceMatrix& output() const { return output_; }

  size_t bytes() const { return bytes_; }
  // That one decoded token reads: all layers and the output matrix.
  uint64_t bytes_per_token() const;

 private:
  class Uploader;
  DeviceWeights() = default;
  // Everything in its place, or, with an uploader that only counts, how much that is.
  Status Place(const LlamaWeights& weights, Uploader& uploader);

  DeviceMatrix token_embedding_;
  std::vector<DeviceLayer> layers_;
  const float* output_norm_ = nullptr;
  DeviceMatrix output_;  // the embedding again if tied
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_CUDA_DEVICE_WEIGHTS_H_
