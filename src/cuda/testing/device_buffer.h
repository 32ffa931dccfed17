// Device memory for tests and benchmarks. What has no value yet is poisoned: bytes of 0xFF are NaN
// in every type.

#ifndef VARVE_CUDA_TESTING_DEVICE_BUFFER_H_
#define VARVE_CUDA_TESTING_DEVICE_BUFFER_H_

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/device_attention.h"

namespace varve::cuda::testing {

inline void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);  // nothing on the device can be trusted after this
}

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) {
    Must(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T) + 1), "cudaMalloc");
    Must(cudaMemset(data_, 0xFF, count * sizeof(T)), "cudaMemset");
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    Upload(values);
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void Upload(const std::vector<T>& values) {
    Must(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
         "cudaMemcpy to the device");
  }
  std::vector<T> Download() const {
    std::vector<T> values(count_);
    Must(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
         "cudaMemcpy from the device");
    return values;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

inline DeviceLimits Limits() {
  DeviceLimits limits;
  const DeviceStatus status = QueryDevice(0, &limits);
  if (!status.ok()) {
    std::printf("%s\n", status.message());
    std::exit(1);
  }
  return limits;
}

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_DEVICE_BUFFER_H_
