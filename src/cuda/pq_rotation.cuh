// The rotation of a codebook of product quantization, of one row by one warp: lane l has channels
// 32k + l.

#ifndef VARVE_CUDA_PQ_ROTATION_CUH_
#define VARVE_CUDA_PQ_ROTATION_CUH_

#include "base/half.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// y = R x, where y[i] is the product of row i with x.
template <int D>
__device__ __forceinline__ void TurnRow(const uint16_t* rotation, int lane, float (&v)[D / 32]) {
  float x[D / 32];
#pragma unroll
  for (int k = 0; k < D / 32; ++k) x[k] = v[k];
  for (int i = 0; i < D; ++i) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      sum = fmaf(x[k], F16ToF32(rotation[i * D + 32 * k + lane]), sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      if (32 * k + lane == i) v[k] = sum;
    }
  }
}

// x = R^T y.
template <int D>
__device__ __forceinline__ void TurnRowBack(const uint16_t* rotation, int lane,
                                            float (&v)[D / 32]) {
  float x[D / 32] = {};
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
    for (int j = 0; j < 32; ++j) {
      const float y = __shfl_sync(0xFFFFFFFFu, v[block], j);
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        x[k] = fmaf(y, F16ToF32(rotation[(32 * block + j) * D + 32 * k + lane]), x[k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] = x[k];
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PQ_ROTATION_CUH_
