// The randomised Hadamard rotation of a row that a warp holds: value k of lane l is channel 32k +
// l. The same butterflies in the same order as the scalar kernel, so that encoders give the same
// bytes.

#ifndef VARVE_CUDA_HADAMARD_CUH_
#define VARVE_CUDA_HADAMARD_CUH_

#include "cuda/warp_ops.cuh"
#include "rungs/rotation_signs.h"

namespace varve::cuda {

namespace rotation {
// A copy in constant memory, made from the one table.
struct SignWords {
  uint32_t word[kMaxDim / 32];
};
constexpr SignWords MakeSignWords() {
  SignWords words{};
  for (size_t i = 0; i < kRotationSigns.size(); ++i) words.word[i] = kRotationSigns[i];
  return words;
}
// The square root as f32; exact where that is a number of f32.
constexpr float RootOf(int x) {
  double root = x;
  for (int i = 0; i < 32; ++i) root = 0.5 * (root + x / root);
  return static_cast<float>(root);
}
}  // namespace rotation
static __constant__ rotation::SignWords kSignWords = rotation::MakeSignWords();

template <int D>
__device__ __forceinline__ void ApplySigns(float (&v)[D / 32], int lane) {
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    if (kSignWords.word[k] >> lane & 1) v[k] = -v[k];
  }
}

template <int D>
__device__ __forceinline__ void Hadamard(float (&v)[D / 32], int lane) {
  constexpr int kBlock = RotationBlockOf(D);
#pragma unroll
  for (int half = 1; half < 32 && half < kBlock; half *= 2) {
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, v[k], half);
      v[k] = (lane & half) != 0 ? __fsub_rn(other, v[k]) : __fadd_rn(v[k], other);
    }
  }
#pragma unroll
  for (int half = 32; half < kBlock; half *= 2) {
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      if ((k & (half / 32)) != 0) continue;
      const float a = v[k], b = v[k + half / 32];
      v[k] = __fadd_rn(a, b);
      v[k + half / 32] = __fsub_rn(a, b);
    }
  }
  constexpr float norm = 1.0f / rotation::RootOf(kBlock);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] = __fmul_rn(v[k], norm);
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_HADAMARD_CUH_
