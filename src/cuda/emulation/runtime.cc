// The few calls of the CUDA runtime that varve_cuda, its back end and their tests make, for kernels
// that run on the CPU: device memory is the heap, and every call is done when it returns.

#include "cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "cuda/emulation/lanes.h"

namespace varve::cuda::emulation {
namespace {

bool g_lost = false;

cudaError_t Answer() { return g_lost ? cudaErrorDevicesUnavailable : cudaSuccess; }

cudaError_t Allocate(void** pointer, size_t bytes) {
  *pointer = g_lost ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (g_lost) return Answer();
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t Copy(void* to, const void* from, size_t bytes) {
  if (!g_lost && bytes > 0) std::memcpy(to, from, bytes);
  return Answer();
}

}  // namespace

void SetDeviceLost(bool lost) { g_lost = lost; }

}  // namespace varve::cuda::emulation

extern "C" {

using varve::cuda::emulation::Allocate;
using varve::cuda::emulation::Answer;
using varve::cuda::emulation::Copy;

cudaError_t cudaMalloc(void** pointer, size_t bytes) { return Allocate(pointer, bytes); }
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
  if (to_pitch < width || from_pitch < width) return cudaErrorInvalidPitchValue;
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
  return cudaMemset(to, value, bytes);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 30;
  return Answer();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return Answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return Answer(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Answer(); }
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
cudaError_t cudaGetLastError() { return cudaSuccess; }
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
cudaError_t cudaSetDevice(int) { return Answer(); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount                ? 4
           : attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor ? 233472
                                                                      : 232448;  // as Hopper
  return Answer();
}

}  // extern "C"
