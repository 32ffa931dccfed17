#include "cuda/shared_memory.h"

#include <cuda_runtime_api.h>

namespace varve::cuda {

DeviceStatus AllowSharedMemory(const char* what, const void* kernel, size_t bytes) {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess && bytes > static_cast<size_t>(most)) {
    return {StatusCode::kUnimplemented, "%s: shared memory of %zu bytes a block > %d", what, bytes,
            most};
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {StatusCode::kInternal, "%s: shared memory of %zu bytes a block: %s", what, bytes,
          cudaGetErrorString(error)};
}

}  // namespace varve::cuda
