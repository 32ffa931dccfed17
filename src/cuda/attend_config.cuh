// What the parts of the attention kernel (attend_kernel.cuh) have in common: what it is made for,
// whose queries a block works on, and the masses of pages.

#ifndef VARVE_CUDA_ATTEND_CONFIG_CUH_
#define VARVE_CUDA_ATTEND_CONFIG_CUH_

#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/block_share.cuh"
#include "cuda/join_states.cuh"
#include "cuda/pq_attend.cuh"
#include "cuda/pq_pairs.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/rung_dispatch.cuh"
#include "cuda/softmax_state.cuh"

namespace varve::cuda {

// What a kernel is made for. kOnly: the one rung besides floats, or 0. kPairs: pages of pq are
// those of pq_pairs.cuh.
template <int kDim, int kColumns, int kTilesOfPage, int kReaders, bool kHasPq, int kOnlyRung,
          bool kPqPairs = false>
struct AttendConfig {
  static constexpr int D = kDim, NT = kColumns, kTiles = kTilesOfPage, kWarps = kReaders;
  static constexpr bool kPq = kHasPq, kOwnPages = kTiles == 4;
  static constexpr int kOnly = kOnlyRung;
  // Turned values bring weights to the page's largest themselves.
  static constexpr bool kFalls = kOnly != static_cast<int>(DeviceRung::kT4) &&
                                 kOnly != static_cast<int>(DeviceRung::kT3) &&
                                 kOnly != static_cast<int>(DeviceRung::kT2);
  static constexpr int kTeams = kWarps / 4;  // of warps that share a page
  static constexpr int kThreads = kWarps * 32 + (kOwnPages ? 0 : 32);
  static constexpr bool kPairs = kPqPairs;
  static_assert(kTeams > 0 && (kOwnPages || kWarps % 4 == 0));
  using Shared = BlockShared<D, NT, kWarps>;
};

// A thread's place, worked out anew: what follows from it is needed before pages and after them,
// and would be kept in registers in between if the compiler knew that it is the same.
struct ThreadPlace {
  int thread;
  int warp;
  LanePlace at;

  __device__ __forceinline__ ThreadPlace()
      : thread(static_cast<int>(InRegister(threadIdx.x))), warp(thread / 32) {
    const int lane = thread % 32;
    at = {lane, lane / 4, lane % 4};
  }
};

// Whose queries these are, and this thread's place.
struct BlockPlace {
  int kv_head;
  int first_head;  // query head
  int num_heads;
  int warp;
  LanePlace at;

  template <class C>
  __device__ __forceinline__ void Take(const AttendParams& params, const Segment& segment) {
    kv_head = segment.head / params.head_chunks;
    const int head_in_group = segment.head % params.head_chunks * C::Shared::kHeads;
    first_head = kv_head * params.group + head_in_group;
    num_heads = min(params.group - head_in_group, C::Shared::kHeads);
  }
};

// What one page adds to the sum of each head. A warp that has all of the page.
template <int NT>
__device__ __forceinline__ void WritePageLse(const AttendParams& params, const BlockPlace& place,
                                             int page, const float (&reference)[NT][2],
                                             const float (&page_sum)[NT][2]) {
  const int g = place.at.g;
  float* out = params.call.page_lse + static_cast<int64_t>(page) * params.call.query_heads +
               place.first_head;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    // Lanes of even g take the first head, the others the second.
    const bool second = g % 2 != 0;
    float sum = second ? page_sum[nt][1] : page_sum[nt][0];
    sum += __shfl_xor_sync(0xFFFFFFFFu, second ? page_sum[nt][0] : page_sum[nt][1], 4);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 8);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    const int head = 8 * nt + 2 * place.at.i + g % 2;
    if (g < 2 && head < place.num_heads) {
      const float from = second ? reference[nt][1] : reference[nt][0];
      out[head] = (from + Log2(sum)) * kLn2;
    }
  }
}

// Of the four warps that share a page for their tiles, by way of shared memory.
template <int NT, class Shared>
__device__ __forceinline__ void JoinPageLse(const AttendParams& params, const BlockPlace& place,
                                            int page, uint32_t round, Shared& shared,
                                            const float (&reference)[NT][2],
                                            const float (&page_sum)[NT][2]) {
  const LanePlace& at = place.at;
  float2* mine = shared.warp_max[round % 2][place.warp];
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = SumOverTokens(page_sum[nt][h]);
      if (at.g == 0) mine[8 * nt + 2 * at.i + h] = {reference[nt][h], sum};
    }
  }
  float* out = params.call.page_lse + static_cast<int64_t>(page) * params.call.query_heads +
               place.first_head;
  const int team = place.warp / 4;
  SyncSome(2 + team, 128);
  if (place.warp % 4 != 0 || at.lane >= place.num_heads) return;
  float most = kLeast, sum = 0.0f;
  for (int w = 0; w < 4; ++w) {
    most = fmaxf(most, shared.warp_max[round % 2][4 * team + w][at.lane].x);
  }
  for (int w = 0; w < 4; ++w) {
    const float2 part = shared.warp_max[round % 2][4 * team + w][at.lane];
    sum = fmaf(part.y, Exp2(part.x - most), sum);
  }
  out[at.lane] = (most + Log2(sum)) * kLn2;
}

// What this warp reads pq strips with. Nothing without pq.
template <class C>
__device__ __forceinline__ PqReader PqReaderOf(const AttendParams& params, int warp,
                                               std::byte* shared_bytes) {
  PqReader pq = {};
  if constexpr (C::kPq) {
    const PageShape& shape = params.call.shape;
    pq = {{shape.page_tokens, shape.pq_subspaces, shape.pq_bits},
          C::D / shape.pq_subspaces,
          SharedPlaceOf(shared_bytes),
          SharedPlaceOf(shared_bytes + params.buffer_offset +
                        (C::kPairs ? 0 : warp * PqBuffer<C::D>::kBytes))};
  }
  return pq;
}

template <class Shared>
__device__ __forceinline__ const float* FactorsOf(DeviceRung key_rung, const LanePlace& at,
                                                  Shared& shared) {
  return (IsTurnedRung(key_rung) ? shared.turned_factor : shared.factor) + 2 * at.i;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_CONFIG_CUH_
