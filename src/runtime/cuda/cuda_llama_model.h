// CudaLlamaModel: a model of the Llama family whose weights are on a GPU, and its runners.
//
// It owns the weights there and one stream. All its runners and all caches that PlaceCache has set
// up work on that stream, so that rows, queries and outputs go from one to the other without
// waiting. The model that it was made of stays, for its tokenizer and its file. Immutable; runners
// of different threads may use it at once.

#ifndef VARVE_RUNTIME_CUDA_CUDA_LLAMA_MODEL_H_
#define VARVE_RUNTIME_CUDA_CUDA_LLAMA_MODEL_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/cuda/device_weights.h"
#include "runtime/llama/llama_model.h"

namespace varve {

class CudaLlamaModel final : public DecoderModel,
                             public std::enable_shared_from_this<CudaLlamaModel> {
 public:
  static Result<std::shared_ptr<const CudaLlamaModel>> Make(
      const std::shared_ptr<const LlamaModel>& source, int device_index, Executor& executor);
  ~CudaLlamaModel() override;

  const LlamaConfig& config() const { return source_->config(); }
  const DeviceWeights& weights() const { return *weights_; }
  cudaStream_t stream() const { return stream_; }
  int device_index() const { return device_index_; }

  // `precision` is the CPU's matter: products here have inputs of 16 bits and sums of f32. An error
  // in making the runner is that of its first step.
  std::unique_ptr<DecoderRunner> MakeRunner(Executor& executor,
                                            ProductPrecision precision) const override;
  void PlaceCache(CacheOptions* options) const override;

 private:
  CudaLlamaModel(DecoderInfo info, std::shared_ptr<const LlamaModel> source, int device_index);
  Result<std::unique_ptr<Tokenizer>> ReadTokenizer() const override {
    return source_->MakeTokenizer();
  }

  std::shared_ptr<const LlamaModel> source_;
  int device_index_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<const DeviceWeights> weights_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_CUDA_CUDA_LLAMA_MODEL_H_
