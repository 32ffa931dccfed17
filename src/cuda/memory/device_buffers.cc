#include "cuda/memory/device_buffers.h"

#include <string>

#include "base/align.h"

namespace varve::cuda {
namespace {

// Growth in steps, so that tables that grow by a page now and then do not.
constexpr size_t kGranule = size_t{64} << 10;

size_t Grown(size_t bytes) { return AlignUp(bytes + bytes / 4, kGranule); }

// Forgets an error that nobody is told, or the next launch would report it, ours or another's.
bool Succeeded(cudaError_t error) {
  if (error == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

}  // namespace

Status CudaStatus(cudaError_t error, const char* what, size_t bytes) {
  if (Succeeded(error)) return Status();
  std::string message = std::string("CUDA: ") + what;
  if (bytes > 0) message += " (" + std::to_string(bytes) + " bytes)";
  message += std::string(": ") + cudaGetErrorString(error);
  return error == cudaErrorMemoryAllocation ? OutOfMemory(message) : IoError(message);
}

DeviceGuard::DeviceGuard(int device) {
  if (!Succeeded(cudaGetDevice(&before_)) || before_ == device) {
    before_ = -1;
    return;
  }
  // A device that is not there shows at the first call that needs it.
  if (!Succeeded(cudaSetDevice(device))) before_ = -1;
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) (void)Succeeded(cudaSetDevice(before_));
}

// Without memory nothing is called: where there is no device, even that would be an error.
DeviceScratch::~DeviceScratch() {
  if (data_ != nullptr) (void)Succeeded(cudaFree(data_));
}

Status DeviceScratch::Reserve(size_t bytes, bool* grown) {
  if (grown != nullptr) *grown = bytes > bytes_;
  if (bytes <= bytes_) return Status();
  (void)cudaFree(data_);
  data_ = nullptr;
  bytes_ = 0;
  // Where the device has no room to grow, what is wanted now may still fit.
  size_t wanted = Grown(bytes);
  if (!Succeeded(cudaMalloc(&data_, wanted))) {
    wanted = bytes;
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data_, wanted), "scratch memory", wanted));
  }
  bytes_ = wanted;
  return Status();
}

Uplink::~Uplink() {
  for (Pinned& pinned : pinned_) {
    if (pinned.data != nullptr) (void)cudaFreeHost(pinned.data);
    if (pinned.sent != nullptr) (void)cudaEventDestroy(pinned.sent);
  }
}

Result<std::byte*> Uplink::Begin(size_t bytes) {
  Pinned& pinned = pinned_[next_];
  if (pinned.sent == nullptr) {
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&pinned.sent, cudaEventDisableTiming),
                                     "creating an event"));
  } else {
    VARVE_RETURN_IF_ERROR(
        CudaStatus(cudaEventSynchronize(pinned.sent), "waiting for a copy to the device"));
  }
  if (bytes > pinned.bytes) {
    if (pinned.data != nullptr) (void)cudaFreeHost(pinned.data);
    pinned.data = nullptr;
    pinned.bytes = 0;
    const size_t wanted = Grown(bytes);
    void* data = nullptr;
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, wanted), "pinned memory", wanted));
    pinned.data = static_cast<std::byte*>(data);
    pinned.bytes = wanted;
  }
  return pinned.data;
}

Status Uplink::Send(size_t bytes, cudaStream_t stream) {
  Pinned& pinned = pinned_[next_];
  next_ = (next_ + 1) % pinned_.size();
  VARVE_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(device_.as<std::byte>(), pinned.data, bytes, cudaMemcpyHostToDevice, stream),
      "copying to the device", bytes));
  return CudaStatus(cudaEventRecord(pinned.sent, stream), "recording an event");
}

size_t Uplink::bytes() const {
  size_t bytes = device_.bytes();
  for (const Pinned& pinned : pinned_) bytes += pinned.bytes;
  return bytes;
}

}  // namespace varve::cuda
