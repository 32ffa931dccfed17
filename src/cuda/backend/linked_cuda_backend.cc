// The back end for CUDA that libvarve has in this build.

#include <cuda_runtime_api.h>

#include "cuda/backend/cuda_backend.h"

namespace varve {

MakeDeviceBackend LinkedCudaBackend() { return &cuda::MakeCudaBackend; }

std::vector<DeviceInfo> LinkedCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  (void)cudaGetLastError();
  std::vector<DeviceInfo> devices;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      (void)cudaGetLastError();
      break;
    }
    devices.push_back({properties.name,
                       "sm_" + std::to_string(properties.major) + std::to_string(properties.minor),
                       properties.multiProcessorCount, properties.totalGlobalMem});
  }
  return devices;
}

}  // namespace varve
