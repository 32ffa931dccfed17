#include "runtime/cuda/cuda_llama_model.h"

#include <utility>

#include <fmt/format.h>

#include "cuda/layers/products.h"
#include "cuda/memory/device_buffers.h"
#include "runtime/cuda/cuda_forward_step.h"
#include "runtime/llama/llama_on_gpu.h"

namespace varve {
namespace {

class CudaLlamaRunner final : public DecoderRunner {
 public:
  explicit CudaLlamaRunner(const std::shared_ptr<const CudaLlamaModel>& model)
      : DecoderRunner(model), step_(*model, clock()) {}

  size_t scratch_bytes() const override { return step_.scratch_bytes(); }

 private:
  Status RunStep(Cache& cache, std::span<const StepEntry> entries, std::span<const int32_t> tokens,
                 int logits_from, float* logits) override {
    return step_.Run(cache, entries, tokens, logits_from, logits);
  }

  CudaForwardStep step_;
};

Status CheckDevice(int device_index) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  (void)cudaGetLastError();
  if (device_index >= 0 && device_index < count) return Status();
  return NotFound(fmt::format("CUDA: device {} of {}", device_index, count));
}

}  // namespace

CudaLlamaModel::CudaLlamaModel(DecoderInfo info, std::shared_ptr<const LlamaModel> source,
                               int device_index)
    : DecoderModel(std::move(info)), source_(std::move(source)), device_index_(device_index) {}

CudaLlamaModel::~CudaLlamaModel() {
  const cuda::DeviceGuard guard(device_index_);
  if (stream_ != nullptr) {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  weights_.reset();
}

Result<std::shared_ptr<const CudaLlamaModel>> CudaLlamaModel::Make(
    const std::shared_ptr<const LlamaModel>& source, int device_index, Executor& executor) {
  VARVE_RETURN_IF_ERROR(CheckDevice(device_index));
  const cuda::DeviceGuard guard(device_index);
  // Without cuBLASLt no step would run: better said before the weights travel.
  VARVE_RETURN_IF_ERROR(cuda::Products().Create(cuda::AlgorithmChoice::kFirst).ToStatus());
  cudaStream_t stream = nullptr;
  VARVE_RETURN_IF_ERROR(cuda::CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                         "creating a stream"));
  Result<std::unique_ptr<const DeviceWeights>> weights =
      DeviceWeights::Upload(source->weights(), executor, stream);
  if (!weights.ok()) {
    (void)cudaStreamDestroy(stream);
    return weights.status();
  }
  DecoderInfo info = source->info();
  info.weight_bytes_per_token = (*weights)->bytes_per_token();
  std::shared_ptr<CudaLlamaModel> model(new CudaLlamaModel(std::move(info), source, device_index));
  model->stream_ = stream;
  model->weights_ = std::move(*weights);
  return std::shared_ptr<const CudaLlamaModel>(std::move(model));
}

std::unique_ptr<DecoderRunner> CudaLlamaModel::MakeRunner(Executor&, ProductPrecision) const {
  return std::make_unique<CudaLlamaRunner>(shared_from_this());
}

void CudaLlamaModel::PlaceCache(CacheOptions* options) const {
  constexpr uint64_t kChunkBytes = uint64_t{64} << 20;
  options->device = Device::kCuda;
  options->device_index = device_index_;
  options->device_chunk_bytes = kChunkBytes;
  options->stream = stream_;
}

Result<std::shared_ptr<const DecoderModel>> PlaceLlamaOnGpu(
    const std::shared_ptr<const LlamaModel>& model, int device_index, Executor& executor) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const CudaLlamaModel> placed,
                         CudaLlamaModel::Make(model, device_index, executor));
  return std::shared_ptr<const DecoderModel>(std::move(placed));
}

}  // namespace varve
