// What a warp keeps between pages: sums of weights and of weighted values, relative to a running
// reference.
//
// Weights are 2^(score - reference). The reference is the largest score of some page before and
// stays until a score is more than 3 above it: weights of f16 up to 8 keep their precision far
// below the largest, and 8 times the largest scale of q4_0 is still a number. It falls where all
// scores of a page are more than 5 below it, as behind a token that has most of the attention:
// weights times the scales of blocks, which may be 2^-11, would leave the range of f16 there.

#ifndef VARVE_CUDA_SOFTMAX_STATE_CUH_
#define VARVE_CUDA_SOFTMAX_STATE_CUH_

#include "cuda/attend_params.h"
#include "cuda/key_scores.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

inline constexpr float kHeadroom = 3.0f;
inline constexpr float kMostBelow = 5.0f;
inline constexpr float kMostFall = 24.0f;
inline constexpr float kLargeSum = 1e20f;  // sums above do not grow by a fall
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

// tanhf is exact to the last bit, and long.
__device__ __forceinline__ float Tanh(float x) {
  const float square = x * x;
  const float near = x * fmaf(square, fmaf(square, 2.0f / 15.0f, -1.0f / 3.0f), 1.0f);
  const float far = fmaf(-2.0f, Reciprocal(Exp2(x * 2.88539008f) + 1.0f), 1.0f);
  return fabsf(x) < 0.125f ? near : far;
}

// Scores of rows that do not count, and under a soft cap: afterwards they are in units of `factor`.
// kEights: tokens lie in the tiles as pq_pairs.cuh says.
template <int NT, int kTiles, bool kEights>
__device__ __forceinline__ void MaskScores(float cap, uint64_t live, int first_tile,
                                           const LanePlace& at, float (&factor)[NT][2],
                                           Scores<NT, kTiles>& s) {
  if (cap > 0.0f) {
    const float to_cap = kLn2 * Reciprocal(cap);
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int k = 0; k < 4 * kTiles; ++k) {
        float& x = s[k / 4][nt][k % 4];
        x = cap * 1.44269504f * Tanh(x * factor[nt][k % 2] * to_cap);
      }
      factor[nt][0] = factor[nt][1] = 1.0f;
    }
  }
  if (live == ~uint64_t{0}) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int first = kEights ? 8 * at.g + 2 * tile : 16 * (first_tile % 4 + tile) + 2 * at.g;
    const auto rows = static_cast<uint32_t>(live >> first);
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if ((rows >> (c / 2) & 1) == 0) s[tile][nt][c] = -INFINITY;
      }
    }
  }
}

// The least that references may become: lower than they are where all scores of a head are far
// below. The same in all lanes of a head.
template <int D, int NT>
__device__ __forceinline__ bool LeastReferences(const float (&most)[NT][2],
                                                const WarpState<D, NT>& state, int i,
                                                float (&least)[NT][2]) {
  bool falls = false;
#pragma unroll
  for (int k = 0; k < 2 * NT; ++k) {
    const float reference = state.reference[k / 2][k % 2];
    const bool near =
        !(most[k / 2][k % 2] < reference - kMostBelow) || state.sum[k / 2][k % 2] > kLargeSum;
    const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, near);
    const bool far = (lanes & 0x11111111u << i) == 0 && reference > kLeast;
    least[k / 2][k % 2] = far ? reference - kMostFall : reference;
    falls = falls || far;
  }
  return falls;
}

// The state and the page's sum so far, to a reference that these scores ask for.
template <int D, int NT>
__device__ __forceinline__ void MoveReference(const float (&most)[NT][2],
                                              const float (&least)[NT][2], WarpState<D, NT>& state,
                                              float (&page_sum)[NT][2]) {
  float alpha[NT][2];
#pragma unroll
  for (int k = 0; k < 2 * NT; ++k) {
    float& reference = state.reference[k / 2][k % 2];
    float after = most[k / 2][k % 2];
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      after = fmaxf(after, __shfl_xor_sync(0xFFFFFFFFu, after, step));
    }
    after = fmaxf(after, least[k / 2][k % 2]);
    alpha[k / 2][k % 2] = Exp2(reference - after);
    reference = after;
    state.sum[k / 2][k % 2] *= alpha[k / 2][k % 2];
    page_sum[k / 2][k % 2] *= alpha[k / 2][k % 2];
  }
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int k = 0; k < 8 * NT; ++k) {
      state.o[block][k / (4 * NT)][k / 4 % NT][k % 4] *= alpha[k / 4 % NT][k % 2];
    }
  }
}

// Scores become weights; the state gets their sums. kFalls: not where weights are brought to the
// page's largest anyway (turned_values.cuh).
template <int D, int NT, int kTiles, bool kFalls, bool kEights = false>
__device__ __forceinline__ void Softmax(float cap, const float* factors, uint64_t live,
                                        int first_tile, const LanePlace& at, Scores<NT, kTiles>& s,
                                        WarpState<D, NT>& state, float (&page_sum)[NT][2]) {
  float factor[NT][2], most[NT][2];
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    factor[nt][0] = factors[8 * nt];
    factor[nt][1] = factors[8 * nt + 1];
  }
  if (cap > 0.0f || live != ~uint64_t{0}) {
    MaskScores<NT, kTiles, kEights>(cap, live, first_tile, at, factor, s);
  }
  bool high = false;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = s[0][nt][h];
#pragma unroll
      for (int k = 1; k < 2 * kTiles; ++k) largest = fmaxf(largest, s[k / 2][nt][k % 2 * 2 + h]);
      most[nt][h] = largest * factor[nt][h];
      high = high || most[nt][h] > state.reference[nt][h] + kHeadroom;
    }
  }
  float least[NT][2];
#pragma unroll
  for (int k = 0; k < 2 * NT; ++k) least[k / 2][k % 2] = state.reference[k / 2][k % 2];
  if constexpr (kFalls) high = LeastReferences<D, NT>(most, state, at.i, least) || high;
  if (__any_sync(0xFFFFFFFFu, high)) MoveReference<D, NT>(most, least, state, page_sum);
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int k = 0; k < 2 * kTiles; ++k) {
        float& x = s[k / 2][nt][k % 2 * 2 + h];
        x = Exp2(fmaf(x, factor[nt][h], -state.reference[nt][h]));
        sum[k % 2] += x;
      }
      state.sum[nt][h] += sum[0] + sum[1];
      page_sum[nt][h] += sum[0] + sum[1];
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_SOFTMAX_STATE_CUH_
