// Warps that share pages, four by four, and the warp that sends for them.

#ifndef VARVE_CUDA_SHARED_PAGES_CUH_
#define VARVE_CUDA_SHARED_PAGES_CUH_

#include <cstdint>

#include "cuda/attend_config.cuh"
#include "cuda/page_ring.cuh"

namespace varve::cuda {

// A warp's end of the ring.
struct RingReader {
  PageRing ring;
  RingPlace at;
  int lane;

  __device__ __forceinline__ void WaitFor(bool value) const {
    WaitCopy(ring.There(value, at.slot), at.phase);
  }
  // All lanes have read the strip, and of K the entry.
  __device__ __forceinline__ void Release(bool value) const {
    __syncwarp();
    ArriveBarrier(ring.Read(value, at.slot), lane);
  }
  __device__ __forceinline__ const PageEntry& entry() const { return ring.entries[at.slot]; }
};

// This warp's tile of a page.
template <class C>
__device__ __forceinline__ void AddSharedPage(const AttendParams& params, const BlockPlace& place,
                                              uint32_t round, const RingReader& in,
                                              typename C::Shared& shared,
                                              WarpState<C::D, C::NT>& state) {
  constexpr int D = C::D, NT = C::NT;
  const int page_tokens = params.call.shape.page_tokens;
  const LanePlace& at = place.at;
  const PageEntry entry = in.entry();
  const DeviceRung key_rung = PageEntry::KeyRung(entry.bits);
  const DeviceRung value_rung = PageEntry::ValueRung(entry.bits);
  const std::byte* keys = in.ring.Slot(false, in.at.slot);
  const std::byte* values = in.ring.Slot(true, in.at.slot);
  if ((entry.bits & PageEntry::kKeysLie) != 0) keys = entry.strips;
  if ((entry.bits & PageEntry::kValuesLie) != 0) {
    values = entry.strips + params.key_bytes[static_cast<int>(key_rung)];
  }
  const PqReader no_pq = {};
  float page_sum[NT][2] = {};
  for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
    const uint64_t live = chunk == 0 ? entry.live[0] : entry.live[1];
    const int tile = 4 * chunk + place.warp % 4;
    Scores<NT, 1> s;
    if (live != 0) {
      ScoreKeys<D, NT, 1, false, C::kOnly>(key_rung, keys, page_tokens, tile, at, no_pq, shared, s);
    }
    if (64 * (chunk + 1) == page_tokens) in.Release(false);
    if (live == 0) continue;
    Softmax<D, NT, 1, true>(params.call.soft_cap, FactorsOf(key_rung, at, shared), live, tile, at,
                            s, state, page_sum);
    in.WaitFor(true);
    SumValues<D, NT, 1, false, C::kOnly>(value_rung, values, page_tokens, tile, at, no_pq, live, s,
                                         state.o);
  }
  in.WaitFor(true);
  in.Release(true);
  if (params.call.page_lse != nullptr) {
    JoinPageLse<NT>(params, place, entry.index, round, shared, state.reference, page_sum);
  }
}

// One warp's share of the pages of one space. Gives the spaces of all pages.
template <class C>
__device__ __forceinline__ uint32_t WalkRing(const AttendParams& params, const BlockPlace& place,
                                             RingReader& in, typename C::Shared& shared,
                                             WarpState<C::D, C::NT>& state) {
  for (uint32_t round = 0;; ++round) {
    in.WaitFor(false);
    const uint32_t bits = in.entry().bits;
    if ((bits & PageEntry::kEnd) != 0) {
      in.Release(false);
      in.WaitFor(true);
      in.Release(true);
      in.at.Advance(C::kTeams, in.ring.pages);
      return bits;
    }
    AddSharedPage<C>(params, place, round, in, shared, state);
    in.at.Advance(C::kTeams, in.ring.pages);
  }
}

// The warp that sends for them, in the same order.
template <class C>
__device__ __forceinline__ void SendShares(const AttendParams& params, const PageRing& ring,
                                           int lane) {
  PageSender sender(params, ring, lane);
  BlockShare share;
  for (Segment segment; share.Next(params, lane, &segment);) {
    uint32_t met = 0;
    bool is_first = true;
    for (int space = kNumSpaces - 1; space >= 0; --space) {
      if ((params.spaces >> space & 1) == 0 || (!is_first && (met >> space & 1) == 0)) continue;
      is_first = false;
      sender.SendPages(segment.head / params.head_chunks, segment.begin, segment.end, space,
                       C::kTeams, &met);
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_SHARED_PAGES_CUH_
