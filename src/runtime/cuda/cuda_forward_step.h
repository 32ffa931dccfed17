// CudaForwardStep: one step of a model on a GPU, prefill or decode, for any number of sequences.
//
// The same step as llama/forward_step.h, operation by operation. What differs is rounding: the
// inputs of products are rounded to the type of the weights, f16 or bf16; the residual stream,
// norms, sums and logits are f32. Inputs beyond f16's range become its largest value
// (cuda/layers/layer_kernels.h).
//
// The host only starts work: per step it sends token ids and rotary tables, and waits once, at the
// end, for the logits. Rows and queries go to the cache as tensors of the device, on the stream
// that the model shares with it. After the largest step so far nothing is allocated. Not
// thread-safe. Model and clock are not owned.

#ifndef VARVE_RUNTIME_CUDA_CUDA_FORWARD_STEP_H_
#define VARVE_RUNTIME_CUDA_CUDA_FORWARD_STEP_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/layers/products.h"
#include "cuda/memory/device_buffers.h"
#include "runtime/cuda/cuda_llama_model.h"
#include "runtime/cuda/step_buffers.h"
#include "runtime/llama/rope.h"
#include "runtime/model/forward_times.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

class CudaForwardStep {
 public:
  CudaForwardStep(const CudaLlamaModel& model, ForwardClock& clock);
  ~CudaForwardStep();
  CudaForwardStep(const CudaForwardStep&) = delete;
  CudaForwardStep& operator=(const CudaForwardStep&) = delete;

  // As ForwardStep::Run. The cache is one that the model has placed.
  Status Run(Cache& cache, std::span<const StepEntry> entries, std::span<const int32_t> tokens,
             int logits_from, float* logits);

  size_t scratch_bytes() const;

 private:
  // Room for the step, and what it needs from the host: positions' tables and tokens.
  Status Prepare(const Cache& cache, std::span<const int32_t> tokens, int logits_from);
  Status Send(std::span<const int32_t> tokens);
  Status RunLayers(Cache& cache);
  Status RunLayer(Cache& cache, int index);
  Status Rotate(const DeviceLayer& layer, int index);
  Status AttendLayer(Cache& cache, int index);
  // `rows` rows of x, normed for a product with that matrix.
  Status Norm(const float* x, int rows, const float* weight, const DeviceMatrix& matrix);
  Status Multiply(const void* x, int rows, const DeviceMatrix& matrix, bool add, float* out);
  // residual += matrix * input + bias, through the norm if there is one.
  Status AddToResidual(const DeviceMatrix& matrix, const float* bias, const void* input,
                       const float* post_norm);
  Status FeedForward(const DeviceLayer& layer);
  Status WriteLogits(int first_token, float* logits);
  // Logits of `rows` tokens, to the host. Waits.
  Status Download(int rows, float* logits);
  bool HasLocalRope(int layer) const {
    return config_.local_rope.has_value() && config_.LayerWindow(layer) > 0;
  }

  const CudaLlamaModel& model_;
  const LlamaConfig& config_;
  const cudaStream_t stream_;
  ForwardClock& clock_;
  cuda::Products products_;
  bool has_products_ = false;
  RopeTable rope_;
  RopeTable local_rope_;  // of layers with a window; used only if the config has one

  int num_tokens_ = 0;                   // T
  int logit_rows_ = 0;                   // most of a product
  std::span<const StepEntry> entries_;   // of the step that runs
  std::vector<int64_t> positions_;       // [T]
  std::vector<AttendRequest> requests_;  // [entries]
  cuda::Uplink uplink_;
  const int32_t* tokens_ = nullptr;       // [T], on the device, as the tables
  const float* cos_sin_ = nullptr;        // [T, 2, pairs]
  const float* local_cos_sin_ = nullptr;  // [T, 2, pairs]
  StepBuffers buffers_;
  float* pinned_ = nullptr;  // logits on their way to the caller
  size_t pinned_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_CUDA_CUDA_FORWARD_STEP_H_
