#include "cuda/step/random_fill.h"

namespace varve::cuda::step {
namespace {

__global__ void FillKernel(__half* values, size_t count, float scale, uint32_t seed) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u ^ seed;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    values[i] = __float2half_rn((static_cast<float>(x >> 8) * 0x1p-23f - 1.0f) * scale);
  }
}

}  // namespace

void FillRandom(__half* values, size_t count, float scale, uint32_t seed, cudaStream_t stream) {
  FillKernel<<<2048, 256, 0, stream>>>(values, count, scale, seed);
}

}  // namespace varve::cuda::step
