#include "cuda/testing/read_all.h"

namespace varve::cuda::testing {
namespace {

__global__ void Read(const uint4* from, size_t count, uint32_t* sum) {
  uint32_t mixed = 0;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x * 8;
  for (size_t at = (static_cast<size_t>(blockIdx.x) * 8) * blockDim.x + threadIdx.x; at < count;
       at += step) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __ldcs(from + at + k * blockDim.x);
#pragma unroll
    for (int k = 0; k < 8; ++k) mixed ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (mixed == 0x12345678u) atomicXor(sum, mixed);
}

}  // namespace

cudaError_t ReadAll(const std::byte* from, size_t bytes, uint32_t* sum, cudaStream_t stream) {
  Read<<<132 * 16, 256, 0, stream>>>(reinterpret_cast<const uint4*>(from), bytes / 16, sum);
  return cudaGetLastError();
}

}  // namespace varve::cuda::testing
