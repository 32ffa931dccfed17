// Memory on a device and the way there, for the back end of caches and for the runtime's models:
// scratch that only grows, and what carries records and tensors from the host.

#ifndef VARVE_CUDA_MEMORY_DEVICE_BUFFERS_H_
#define VARVE_CUDA_MEMORY_DEVICE_BUFFERS_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "varve/status.h"

namespace varve::cuda {

// Ok, or what failed and why; `bytes` were wanted or moved, 0: none.
Status CudaStatus(cudaError_t error, const char* what, size_t bytes = 0);

// The calling thread's device is `device` while this lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = -1;
};

// Device memory that only grows; its content does not survive growth.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // True in *grown if the memory is new. Waits for the device if there was less.
  Status Reserve(size_t bytes, bool* grown = nullptr);
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// From the host to the device, without waiting: the host's side is one of a few pinned buffers,
// which is used again when its copy is done. The device's side is one buffer: what was sent before
// has been read by then, as the stream keeps order.
class Uplink {
 public:
  Uplink() = default;
  ~Uplink();
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  // Room for `bytes` on the device; where that is may be in what is sent.
  Status ReserveDevice(size_t bytes) { return device_.Reserve(bytes); }
  std::byte* device() const { return device_.as<std::byte>(); }
  // The host's side for as many, to be filled before Send.
  Result<std::byte*> Begin(size_t bytes);
  Status Send(size_t bytes, cudaStream_t stream);
  size_t bytes() const;

 private:
  struct Pinned {
    std::byte* data = nullptr;
    size_t bytes = 0;
    cudaEvent_t sent = nullptr;
  };
  std::array<Pinned, 8> pinned_;
  size_t next_ = 0;
  DeviceScratch device_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_MEMORY_DEVICE_BUFFERS_H_
