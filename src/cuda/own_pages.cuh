// Warps that take pages of their own and send for their strips themselves; pages of floats, which
// are too large for that, are shared by four.

#ifndef VARVE_CUDA_OWN_PAGES_CUH_
#define VARVE_CUDA_OWN_PAGES_CUH_

#include <cstdint>

#include "cuda/attend_config.cuh"
#include "cuda/page_ring.cuh"
#include "cuda/strip_slots.cuh"

namespace varve::cuda {

// A warp's pages of a segment, in a pass for one space.
template <class C>
struct OwnPages {
  PageWindow window;
  StripSlots<C::kOnly> slots;
  uint32_t count = 0;  // of pages worked off since the kernel's start
  PageHead page = {};
  bool more = false;

  // The first page of a space; its K strip is sent for.
  __device__ __forceinline__ void Start(const AttendParams& params, const Segment& segment,
                                        int kv_head, int space, int warp) {
    window = {&params, kv_head, segment.begin + warp, C::kWarps, segment.end};
    window.Load(space, slots.lane);
    more = window.template Take<C::kOnly == 0>(space, slots.lane, &page);
    if (more) slots.Send(page, false);
  }
  // Its V strip, once nothing else is in the place of slots.
  __device__ __forceinline__ void StartValues() const {
    if (more) slots.Send(page, true);
  }
};

// Scores of 64 tokens of a page, and the sums of their values.
template <class C>
__device__ __forceinline__ void ScoreChunk(DeviceRung rung, const std::byte* keys, int page_tokens,
                                           int chunk, const LanePlace& at, const PqReader& pq,
                                           typename C::Shared& shared, Scores<C::NT, 4>& s) {
  if constexpr (C::kPairs) {
    PairKeyScores<C::NT>(pq.tables, keys, at, SetOf<C::D, C::NT>(shared, kOrderPq, kOffsetsPq, at),
                         &shared.pq_step[2 * at.i], s);
  } else {
    ScoreKeys<C::D, C::NT, 4, C::kPq, C::kOnly>(rung, keys, page_tokens, 4 * chunk, at, pq, shared,
                                                s);
  }
}
template <class C>
__device__ __forceinline__ void SumChunk(DeviceRung rung, const std::byte* values, int page_tokens,
                                         int chunk, const LanePlace& at, const PqReader& pq,
                                         uint64_t live, const Scores<C::NT, 4>& p,
                                         Sums<C::D, C::NT>& o) {
  if constexpr (C::kPairs) {
    PairValueSums<C::NT>(pq.tables, values, at, p, o);
  } else {
    SumValues<C::D, C::NT, 4, C::kPq, C::kOnly>(rung, values, page_tokens, 4 * chunk, at, pq, live,
                                                p, o);
  }
}

// All pages, one after the other.
template <class C>
__device__ __forceinline__ void WalkPages(const AttendParams& params, const BlockPlace& place,
                                          int space, std::byte* shared_bytes, OwnPages<C>& own,
                                          typename C::Shared& shared,
                                          WarpState<C::D, C::NT>& state) {
  constexpr int D = C::D, NT = C::NT;
  const int page_tokens = C::kOnly != 0 ? 64 : params.call.shape.page_tokens;
  const LanePlace& at = place.at;
  const auto& slots = own.slots;
  const PqReader pq = PqReaderOf<C>(params, place.warp, shared_bytes);
  PageHead& page = own.page;
  // Pages that a kernel for one rung meets here have that one in both parts.
  const auto rung_of = [](DeviceRung rung) {
    return C::kOnly != 0 ? static_cast<DeviceRung>(C::kOnly) : rung;
  };
  for (PageHead next; own.more; page = next, ++own.count) {
    const bool more = own.window.template Take<C::kOnly == 0>(space, at.lane, &next);
    const auto release = [&](bool value) {  // all have read the strip: the next may come
      __syncwarp();
      if (more) slots.Send(next, value);
    };
    ulonglong2 live_rows = {~0ull, ~0ull};
    if ((page.bits & PageEntry::kFull) == 0) live_rows = LoadLive(params.call.pages + page.index);
    const std::byte* keys = slots.Slot(false);
    const std::byte* values = slots.Slot(true);
    if constexpr (C::kOnly != 0) {
      keys = InShared(keys);
      values = InShared(values);
    } else {
      if ((page.bits & PageEntry::kKeysLie) != 0) keys = page.strips;
      if ((page.bits & PageEntry::kValuesLie) != 0) {
        values = page.strips + page.key_bytes();
      }
    }
    slots.Wait(false, own.count);
    float page_sum[NT][2] = {};
    for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
      const uint64_t live = chunk == 0 ? live_rows.x : live_rows.y;
      Scores<NT, 4> s;
      if (live != 0) {
        ScoreChunk<C>(rung_of(page.key_rung()), keys, page_tokens, chunk, at, pq, shared, s);
      }
      if (64 * (chunk + 1) == page_tokens) release(false);
      if (live == 0) continue;
      Softmax<D, NT, 4, C::kFalls, C::kPairs>(params.call.soft_cap,
                                              FactorsOf(rung_of(page.key_rung()), at, shared), live,
                                              4 * chunk, at, s, state, page_sum);
      slots.Wait(true, own.count);
      SumChunk<C>(rung_of(page.value_rung()), values, page_tokens, chunk, at, pq, live, s, state.o);
    }
    slots.Wait(true, own.count);
    release(true);
    if (params.call.page_lse != nullptr) {
      WritePageLse<NT>(params, place, page.index, state.reference, page_sum);
    }
    own.more = more;
  }
}

// One tile of a page of floats that is read where it lies.
template <int D, int NT, bool kBrainKeys, class Shared>
__device__ __forceinline__ void AddFloatTile(const AttendParams& params, const LanePlace& at,
                                             const std::byte* keys, DeviceRung value_rung,
                                             int first_tile, uint64_t live, Shared& shared,
                                             WarpState<D, NT>& state, float (&page_sum)[NT][2]) {
  const int page_tokens = params.call.shape.page_tokens;
  constexpr int kHigh = kBrainKeys ? kOrderBF16High : kOrderF16;
  constexpr int kLow = kBrainKeys ? kOrderBF16Low : kOrderF16;
  Scores<NT, 1> s;
  FloatKeyScores<D, NT, 1, kBrainKeys>(keys, first_tile, at, SetOf<D, NT>(shared, kHigh, 0, at),
                                       SetOf<D, NT>(shared, kLow, 0, at), s);
  Softmax<D, NT, 1, true>(params.call.soft_cap, shared.factor + 2 * at.i, live, first_tile, at, s,
                          state, page_sum);
  const std::byte* values =
      keys + params.key_bytes[static_cast<int>(kBrainKeys ? DeviceRung::kBF16 : DeviceRung::kF16)];
  if (value_rung == DeviceRung::kF16) {
    FloatValueSums<D, NT, 1, false, false>(values, page_tokens, first_tile, at, live, s, state.o);
  } else {
    FloatValueSums<D, NT, 1, true, false>(values, page_tokens, first_tile, at, live, s, state.o);
  }
}

// A warp's tiles of such a page.
template <class C>
__device__ __forceinline__ void AddFloatPage(const AttendParams& params, const LanePlace& at,
                                             const std::byte* keys, uint32_t bits,
                                             const uint64_t (&live)[2], int tile,
                                             typename C::Shared& shared,
                                             WarpState<C::D, C::NT>& state,
                                             float (&page_sum)[C::NT][2]) {
  const DeviceRung value_rung = PageEntry::ValueRung(bits);
  for (int chunk = 0; chunk < params.call.shape.page_tokens / 64; ++chunk) {
    const uint64_t rows = chunk == 0 ? live[0] : live[1];
    if ((rows >> (16 * tile) & 0xFFFF) == 0) continue;
    if (PageEntry::KeyRung(bits) == DeviceRung::kF16) {
      AddFloatTile<C::D, C::NT, false>(params, at, keys, value_rung, 4 * chunk + tile, rows, shared,
                                       state, page_sum);
    } else {
      AddFloatTile<C::D, C::NT, true>(params, at, keys, value_rung, 4 * chunk + tile, rows, shared,
                                      state, page_sum);
    }
  }
}

// Pages of floats too large for a warp's slots: a warp alone would wait for memory many times over,
// so four share each page, a tile each.
template <class C>
__device__ __forceinline__ void WalkFloats(const AttendParams& params, const BlockPlace& place,
                                           typename C::Shared& shared,
                                           WarpState<C::D, C::NT>& state) {
  constexpr int NT = C::NT;
  const Segment& segment = shared.segment;
  const ThreadPlace here;
  const int team = here.warp / 4, tile = here.warp % 4, lane = here.at.lane;
  if (team >= C::kTeams) return;
  uint32_t round = 0;
  int found = 0;
  for (int first = segment.begin; first < segment.end; first += 32) {
    // Each lane reads a record: one after the other would wait for memory as often.
    const PageRecord record(params, min(first + lane, segment.end - 1));
    const bool floats = first + lane < segment.end && IsLyingFloats(record.bits);
    for (uint32_t left = __ballot_sync(0xFFFFFFFFu, floats); left != 0; left &= left - 1) {
      if (found++ % C::kTeams != team) continue;
      const int owner = __ffs(left) - 1;
      const std::byte* keys = record.bytes + static_cast<size_t>(place.kv_head) *
                                                 (record.key_bytes + record.value_bytes);
      keys = reinterpret_cast<const std::byte*>(
          __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(keys), owner));
      const uint32_t bits = __shfl_sync(0xFFFFFFFFu, record.bits, owner);
      const uint64_t live[2] = {__shfl_sync(0xFFFFFFFFu, record.live[0], owner),
                                __shfl_sync(0xFFFFFFFFu, record.live[1], owner)};
      float page_sum[NT][2] = {};
      AddFloatPage<C>(params, here.at, keys, bits, live, tile, shared, state, page_sum);
      if (params.call.page_lse != nullptr) {
        JoinPageLse<NT>(params, place, first + owner, round++, shared, state.reference, page_sum);
      }
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_OWN_PAGES_CUH_
