// The class of the back end for CUDA. Split over cuda_backend.cc (creation, append, encode) and
// cuda_backend_attend.cc.

#ifndef VARVE_CUDA_BACKEND_CUDA_BACKEND_IMPL_H_
#define VARVE_CUDA_BACKEND_CUDA_BACKEND_IMPL_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "cuda/backend/attend_batch.h"
#include "cuda/backend/device_codebooks.h"
#include "cuda/backend/device_memory.h"
#include "cuda/device_attention.h"
#include "cuda/device_encode.h"
#include "cuda/memory/device_buffers.h"

namespace varve::cuda {

inline constexpr size_t kSentAlign = 256;  // of arrays that are sent together

// A stream of the caller, or one of its own.
class Stream {
 public:
  ~Stream() {
    if (moved_ != nullptr) (void)cudaEventDestroy(moved_);
    if (owned_) (void)cudaStreamDestroy(stream_);
  }
  Status Create(void* given) {
    stream_ = static_cast<cudaStream_t>(given);
    if (given != nullptr) return Status();
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                     "creating a stream"));
    owned_ = true;
    return Status();
  }
  // Goes on in `next`, behind what is under way here.
  Status MoveTo(cudaStream_t next);
  cudaStream_t get() const { return stream_; }
  Status Wait() const { return CudaStatus(cudaStreamSynchronize(stream_), "waiting"); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t moved_ = nullptr;  // the last thing in the stream before
  bool owned_ = false;
};

class CudaBackend final : public Backend {
 public:
  ~CudaBackend() override;
  Status Create(const DeviceSetup& setup);

  PageMemory* memory() override { return memory_.get(); }
  uint64_t pool_bytes() const override { return memory_->pool_bytes(); }
  DeviceBytes* device_bytes() override { return memory_.get(); }
  Status Append(int layer, std::span<const AppendJob> jobs) override;
  void Encode(std::span<EncodeJob> jobs) override;
  Status SetStream(void* stream) override;
  Status Attend(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
                const AttendOptions& options, AttentionObserver* observer) override;
  size_t scratch_bytes() const override {
    return uplink_.bytes() + results_.bytes() + queries_.bytes() + workspace_.bytes() +
           codebooks_.bytes() + downlink_.capacity();
  }
  uint64_t replaced() const override;
  UnpackedStrips unpacked() const override { return {}; }

 private:
  Status AppendHostRows(std::span<const AppendJob> jobs);
  Status AppendDeviceRows(std::span<const AppendJob> jobs);
  // device_jobs null: rows on the device, of a single job.
  Status LaunchAppend(std::span<const AppendJob> jobs, const std::byte* device_jobs, DType dtype,
                      RowStrides keys, RowStrides values);
  Status EncodeLayer(std::span<const EncodeJob> jobs);
  // Gives their place on the device.
  template <typename Job>
  Result<const std::byte*> SendRecords(std::span<const Job> jobs);

  // Requests whose tensors are in one place and of one type.
  struct Run {
    int layer;
    std::span<const AttentionRequest> requests;
    const AttendOptions* options;
    AttentionObserver* observer;

    const AttendRequest& first() const { return *requests[0].request; }
    bool on_host() const { return first().device == Device::kCpu; }
    DType output_type() const { return first().output_dtype; }
    bool wants_lse() const {
      return std::any_of(requests.begin(), requests.end(), [](const AttentionRequest& request) {
        return request.request->log_sum_exp != nullptr;
      });
    }
  };

  // Whether the request is a run by itself, for the kernels of prompts.
  bool IsPrompt(const AttentionRequest& request, const AttentionObserver* observer) const;
  Status SendBatch(const Run& run, DeviceAttention* call, const std::byte** ranges);
  Status PlaceQueries(const Run& run, const std::byte* sent, DeviceAttention* call);
  Status PlaceResults(const Run& run, DeviceAttention* call);
  Status Launch(const DeviceAttention& call);
  Status LaunchPrompt(const DeviceAttention& call, const VisibleRows* visible);
  // Outputs and log-sum-exps to tensors of the device; to those of the host, and masses.
  Status GiveToDevice(const Run& run, const DeviceAttention& call);
  Status Download(const Run& run, const DeviceAttention& call);
  void GiveToHost(const Run& run, const std::byte* output, const float* lse) const;
  Status AttendRun(const Run& run);

  int heads() const { return shape_.num_kv_heads * shape_.group_size; }

  CacheShape shape_;
  PageShape page_shape_;
  int device_ = 0;
  DeviceLimits limits_;
  bool takes_prompts_ = false;  // a block of their kernel has the shared memory that it needs
  Stream stream_;
  std::unique_ptr<DeviceMemory> memory_;
  DeviceCodebooks codebooks_;
  Uplink uplink_;
  DeviceScratch results_;      // outputs, log-sum-exps, page masses
  DeviceScratch queries_;      // those of several device tensors side by side
  DeviceScratch workspace_;    // of attention
  DeviceScratch replaced_;     // count of values that were replaced
  int workspace_queries_ = 0;  // whose counters it begins with
  std::vector<std::byte> downlink_;
  AttendBatch batch_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_CUDA_BACKEND_IMPL_H_
