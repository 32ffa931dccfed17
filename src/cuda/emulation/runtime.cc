// The few calls of the CUDA runtime that varve_cuda, its back end and their tests make, for kernels
// that run on the CPU: there is one device, its memory is the heap, and every call is done when it
// returns. An error stays until it is asked for, as the runtime's do.

#include "cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/emulation/lanes.h"

namespace varve::cuda::emulation {
namespace {

bool g_lost = false;
size_t g_shared = kHopperShared;
int g_ptx_version = 90;
size_t g_largest_allocation = SIZE_MAX;
uint64_t g_bytes_set = 0;
int g_default_stream_waits = 0;
cudaError_t g_last_error = cudaSuccess;

cudaError_t Answer(cudaError_t error) {
  if (error != cudaSuccess) g_last_error = error;
  return error;
}
cudaError_t Answer() { return Answer(g_lost ? cudaErrorDevicesUnavailable : cudaSuccess); }

cudaError_t Allocate(void** pointer, size_t bytes) {
  if (g_lost) return Answer();
  void* taken = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (taken == nullptr) return Answer(cudaErrorMemoryAllocation);
  *pointer = taken;
  return cudaSuccess;
}

cudaError_t AllocateOnDevice(void** pointer, size_t bytes) {
  if (!g_lost && bytes > g_largest_allocation) return Answer(cudaErrorMemoryAllocation);
  return Allocate(pointer, bytes);
}

cudaError_t Copy(void* to, const void* from, size_t bytes) {
  if (!g_lost && bytes > 0) std::memcpy(to, from, bytes);
  return Answer();
}

cudaError_t Attribute(int* value, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(g_shared + 1024);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(g_shared);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    default:
      return Answer(cudaErrorInvalidValue);
  }
  return Answer();
}

}  // namespace

void SetDeviceLost(bool lost) { g_lost = lost; }
void SetSharedMemory(size_t bytes) { g_shared = bytes; }
void SetPtxVersion(int version) { g_ptx_version = version; }
void SetLargestAllocation(size_t bytes) { g_largest_allocation = bytes; }
uint64_t BytesSet() { return g_bytes_set; }
int DefaultStreamWaits() { return g_default_stream_waits; }

}  // namespace varve::cuda::emulation

extern "C" {

using varve::cuda::emulation::Allocate;
using varve::cuda::emulation::Answer;
using varve::cuda::emulation::Copy;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return varve::cuda::emulation::AllocateOnDevice(pointer, bytes);
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return Allocate(pointer, bytes); }
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return Copy(to, from, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  return Copy(to, from, bytes);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t) {
  if (to_pitch < width || from_pitch < width) return Answer(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; ++row) {
    (void)Copy(static_cast<char*>(to) + row * to_pitch,
               static_cast<const char*>(from) + row * from_pitch, width);
  }
  return Answer();
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return Answer();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  varve::cuda::emulation::g_bytes_set += bytes;
  return cudaMemset(to, value, bytes);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 30;
  return Answer();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static int stream_of_all = 0;  // null would be the default stream
  *stream = reinterpret_cast<cudaStream_t>(&stream_of_all);
  return Answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return Answer(); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) ++varve::cuda::emulation::g_default_stream_waits;
  return Answer();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  static int event_of_all = 0;
  *event = reinterpret_cast<cudaEvent_t>(&event_of_all);
  return Answer();
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return Answer(); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return Answer(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Answer(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Answer(); }
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t) {
  if (Answer() != cudaSuccess) return Answer();
  if (shared_bytes > varve::cuda::emulation::g_shared) return Answer(cudaErrorInvalidValue);
  varve::cuda::emulation::RunKernel(
      reinterpret_cast<void (*)(const void*)>(const_cast<void*>(kernel)), arguments[0], grid, block,
      shared_bytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return Answer(); }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = varve::cuda::emulation::g_ptx_version;
  attributes->binaryVersion = 90;
  return Answer();
}
cudaError_t cudaPeekAtLastError() { return varve::cuda::emulation::g_last_error; }
cudaError_t cudaGetLastError() {
  return std::exchange(varve::cuda::emulation::g_last_error, cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() { return Answer(); }
const char* cudaGetErrorString(cudaError_t) { return "error of the emulated runtime"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return Answer();
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return Answer();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated");
  return Answer();
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? Answer() : Answer(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return varve::cuda::emulation::Attribute(value, attribute);
}

}  // extern "C"
