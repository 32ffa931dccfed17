// What a warp keeps between pages: sums of weights and of weighted values, relative to a running
// reference.
//
// Weights are 2^(score - reference) with a reference 3 below the maximum: weights of f16 up to 8
// keep their precision far below the largest, and 8 times the largest scale of q4_0 is still a
// number.

#ifndef VARVE_CUDA_SOFTMAX_STATE_CUH_
#define VARVE_CUDA_SOFTMAX_STATE_CUH_

#include "cuda/attend_params.h"
#include "cuda/key_scores.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

inline constexpr float kLeast = -1e30f;  // a reference below every score, and finite
inline constexpr float kHeadroom = 3.0f;
inline constexpr float kLn2 = 0.693147181f;

// Sums over the eight lanes that hold the same heads.
__device__ __forceinline__ float SumOverTokens(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// The state of a warp between pages.
template <int D, int NT>
struct WarpState {
  Sums<D, NT> o;
  float reference[NT][2];  // of heads 8 * nt + 2i and the next
  float sum[NT][2];        // of this lane's tokens
};

template <int D, int NT>
__device__ __forceinline__ void Reset(WarpState<D, NT>& state) {
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int k = 0; k < 2 * NT * 4; ++k) state.o[block][k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    state.reference[nt][0] = state.reference[nt][1] = kLeast;
    state.sum[nt][0] = state.sum[nt][1] = 0.0f;
  }
}

// Scores become weights; the state is brought to the new reference. page_sum follows
// it.
template <int D, int NT, int kTiles>
__device__ __forceinline__ void Softmax(const AttendParams& params, const float* factors,
                                        uint64_t live, int first_tile, const LanePlace& at,
                                        Scores<NT, kTiles>& s, WarpState<D, NT>& state,
                                        float (&page_sum)[NT][2]) {
  float factor[NT][2];
  float alpha[NT][2];
  bool moved = false;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    factor[nt][0] = factors[8 * nt];
    factor[nt][1] = factors[8 * nt + 1];
  }
  const float cap = params.call.soft_cap;
  if (cap > 0.0f) {
    const float to_cap = 0.693147181f / cap;
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int k = 0; k < 4 * kTiles; ++k) {
        float& x = s[k / 4][nt][k % 4];
        x = cap * 1.44269504f * tanhf(x * factor[nt][k % 2] * to_cap);
      }
      factor[nt][0] = factor[nt][1] = 1.0f;
    }
  }
  if (live != ~uint64_t{0}) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint32_t rows =
          static_cast<uint32_t>(live >> (16 * (first_tile % 4 + tile) + 2 * at.g));
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if ((rows >> (c / 2) & 1) == 0) s[tile][nt][c] = -INFINITY;
        }
      }
    }
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int k = 0; k < 2 * kTiles; ++k) most = fmaxf(most, s[k / 2][nt][k % 2 * 2 + h]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
      }
      const float before = state.reference[nt][h];
      const float after = fmaxf(before, fmaf(most, factor[nt][h], -kHeadroom));
      alpha[nt][h] = Exp2(before - after);
      moved = moved || after != before;
      state.reference[nt][h] = after;
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < 2 * kTiles; ++k) {
        float& x = s[k / 2][nt][k % 2 * 2 + h];
        x = Exp2(fmaf(x, factor[nt][h], -after));
        sum += x;
      }
      state.sum[nt][h] = fmaf(state.sum[nt][h], alpha[nt][h], sum);
      page_sum[nt][h] = fmaf(page_sum[nt][h], alpha[nt][h], sum);
    }
  }
  if (!__any_sync(0xFFFFFFFFu, moved)) return;
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
        for (int c = 0; c < 4; ++c) state.o[block][m][nt][c] *= alpha[nt][c % 2];
      }
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_SOFTMAX_STATE_CUH_
