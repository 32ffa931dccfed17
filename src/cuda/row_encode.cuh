// One row to codes, by a warp: value k of lane l is channel 32k + l. The arithmetic is that of
// kernels/scalar_kernels.cc and kernels/scalar_turned.cc, operation by operation: products and sums
// are rounded apart, and sums are taken in the same order, so that the bytes are the same.

#ifndef VARVE_CUDA_ROW_ENCODE_CUH_
#define VARVE_CUDA_ROW_ENCODE_CUH_

#include "base/half.h"
#include "cuda/strip_layout.cuh"
#include "cuda/warp_ops.cuh"
#include "kernels/turned_kernels.h"

namespace varve::cuda {

inline constexpr float kMostHalf = 65504.0f;

template <class T>
__device__ __forceinline__ T SumOverLanes(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
__device__ __forceinline__ float MaxOverLanes(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// NaN becomes 0, more than the limit becomes it. Counts what changed.
__device__ __forceinline__ float Sanitize(float x, float limit, int* replaced) {
  if (fabsf(x) <= limit) return x;
  ++*replaced;
  return x != x ? 0.0f : copysignf(limit, x);
}

// Codes as they are stored, [D] bytes of shared memory, and scales [D / 32] as f16 bits. `flip` is
// 0x80 for K.
template <int D>
__device__ __forceinline__ void EncodeQ8Row(const float (&v)[D / 32], int lane, int flip,
                                            uint8_t* codes, uint16_t* scales, int* replaced) {
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float x = Sanitize(v[k], kMostHalf * 127.0f, replaced);
    const float scale = __fdiv_rn(MaxOverLanes(fabsf(x)), 127.0f);
    const float inverse = scale != 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
    const float scaled = roundf(__fmul_rn(x, inverse));
    // Infinite inverses make NaN of 0.
    const float code = scaled != scaled ? 0.0f : fminf(fmaxf(scaled, -127.0f), 127.0f);
    codes[32 * k + lane] = static_cast<uint8_t>(static_cast<int>(code) ^ flip);
    if (lane == 0) scales[k] = F32ToF16(scale);
  }
}

// A byte per nibble: 0 … 15.
template <int D>
__device__ __forceinline__ void EncodeQ4Row(const float (&v)[D / 32], int lane, uint8_t* codes,
                                            uint16_t* scales, int* replaced) {
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float x = Sanitize(v[k], kMostHalf * 8.0f, replaced);
    const float largest = MaxOverLanes(fabsf(x));
    const uint32_t equals = __ballot_sync(0xFFFFFFFFu, fabsf(x) == largest);
    const float first = __shfl_sync(0xFFFFFFFFu, x, __ffs(equals) - 1);
    const float scale = __fdiv_rn(largest > 0.0f ? first : 0.0f, -8.0f);
    const float inverse = scale != 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
    const float shifted = __fadd_rn(__fmul_rn(x, inverse), 8.5f);
    const float code = shifted != shifted ? 8.0f : fminf(fmaxf(shifted, 0.0f), 15.0f);
    codes[32 * k + lane] = static_cast<uint8_t>(static_cast<int>(code));
    if (lane == 0) scales[k] = F32ToF16(scale);
  }
}

// Sums of a row in 16 lanes (channel d in lane d % 16, ascending), whose halves are then added. All
// lanes get the sum.
template <int D>
__device__ __forceinline__ float SumTurned(const float (&term)[D / 32], int lane) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, term[k], 16);
    sum = __fadd_rn(sum, lane < 16 ? term[k] : other);
    sum = __fadd_rn(sum, lane < 16 ? other : term[k]);
  }
#pragma unroll
  for (int half = 8; half > 0; half /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, half));
  }
  return sum;
}

// A turned row, finite.
template <int D, int kBits>
__device__ __forceinline__ void EncodeTurnedRow(const float (&v)[D / 32], int lane, uint8_t* codes,
                                                uint16_t* scale_bits, int* replaced) {
  constexpr int kHalf = 1 << (kBits - 1);
  constexpr auto kLevels = TurnedLevels<kBits>::kPositive;
  float terms[D / 32];
#pragma unroll
  for (int k = 0; k < D / 32; ++k) terms[k] = __fmul_rn(v[k], v[k]);
  const float rms = __fsqrt_rn(__fdiv_rn(SumTurned<D>(terms, lane), static_cast<float>(D)));
  const float factor = rms > 0.0f ? __fdiv_rn(TurnedLevels<kBits>::kDeviation, rms) : 0.0f;
  float norms[D / 32];
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float magnitude = fabsf(__fmul_rn(v[k], factor));
    int place = 0;
    float level = static_cast<float>(kLevels[0]);
#pragma unroll
    for (size_t i = 0; i + 1 < kHalf; ++i) {
      const bool above = 2.0f * magnitude > static_cast<float>(kLevels[i] + kLevels[i + 1]);
      place += above ? 1 : 0;
      level = above ? static_cast<float>(kLevels[i + 1]) : level;
    }
    codes[32 * k + lane] = static_cast<uint8_t>(v[k] < 0.0f ? kHalf - 1 - place : kHalf + place);
    terms[k] = __fmul_rn(level, fabsf(v[k]));
    norms[k] = __fmul_rn(level, level);
  }
  const float product = SumTurned<D>(terms, lane);
  const float square = SumTurned<D>(norms, lane);
  const float scale = __fdiv_rn(__fdiv_rn(product, square), kTurnedUnit);
  if (lane != 0) return;
  if (scale > kMostHalf) *replaced += D;
  *scale_bits = F32ToF16(fminf(scale, kMostHalf));
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ROW_ENCODE_CUH_
