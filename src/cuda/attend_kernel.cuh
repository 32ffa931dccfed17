// The attention kernel. Work is shared out evenly over the blocks (block_share.cuh): a block has
// some pages of one (sequence, KV head), or of several behind one another, for up to 8 * NT query
// heads. Strips come into shared memory ahead of their use; from there they go to registers in the
// order in which the matrix products want them (key_scores.cuh, value_sums.cuh). With kTiles = 4
// each warp takes pages of its own, 64 tokens at a time, and sends for their strips itself
// (strip_slots.cuh); with kTiles = 1 four warps take one tile of 16 tokens each of every page,
// which suits strips too large for a warp, and one more warp sends (page_ring.cuh). Each warp keeps
// a softmax of its own (softmax_state.cuh). At the end of a head they are joined, and the last of
// its blocks joins those (join_states.cuh).
//
// Pages of all rungs may be mixed. Values of different spaces (plain, turned, pq) are summed in
// passes of their own over the same records; few layers have more than two. Most pages of a layer
// have one rung: kernels for it alone (kOnly) compute scores of the next page beside the sums of
// this one, so that neither waits for its own results.

#ifndef VARVE_CUDA_ATTEND_KERNEL_CUH_
#define VARVE_CUDA_ATTEND_KERNEL_CUH_

#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/block_share.cuh"
#include "cuda/join_states.cuh"
#include "cuda/page_ring.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/rung_dispatch.cuh"
#include "cuda/softmax_state.cuh"
#include "cuda/strip_slots.cuh"

namespace varve::cuda {

// What a kernel is made for. kOnly: the one rung besides floats, or 0. kAhead: scores of the next
// page are computed beside the sums of this one, for which a warp has two slots of each part.
template <int kDim, int kColumns, int kTilesOfPage, int kReaders, bool kHasPq, int kOnlyRung,
          bool kLooksAhead>
struct AttendConfig {
  static constexpr int D = kDim, NT = kColumns, kTiles = kTilesOfPage, kWarps = kReaders;
  static constexpr bool kPq = kHasPq, kOwnPages = kTiles == 4;
  static constexpr int kOnly = kOnlyRung;
  static constexpr int kTeams = kWarps / 4;  // of warps that share a page
  static constexpr int kThreads = kWarps * 32 + (kOwnPages ? 0 : 32);
  static constexpr bool kAhead = kLooksAhead;
  static constexpr int kDepth = kOwnPages ? kAhead ? 2 : 1 : 0;
  static_assert(kTeams > 0 && (kOwnPages || kWarps % 4 == 0));
  using Shared = BlockShared<D, NT, kWarps>;
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
          SharedPlaceOf(shared_bytes + params.buffer_offset + warp * PqBuffer<C::D>::kBytes)};
  }
  return pq;
}

template <class Shared>
__device__ __forceinline__ const float* FactorsOf(DeviceRung key_rung, const LanePlace& at,
                                                  Shared& shared) {
  return (IsTurnedRung(key_rung) ? shared.turned_factor : shared.factor) + 2 * at.i;
}

// --- warps with pages of their own ---

// A warp's pages of a segment, in a pass for one space.
template <class C>
struct OwnPages {
  PageWindow window;
  StripSlots<C::kDepth, C::kOnly> slots;
  uint32_t count = 0;  // of pages worked off since the kernel's start
  PageHead page = {}, next = {};
  bool more = false, more_next = false;

  // The first pages of a space; their K strips are sent for.
  __device__ __forceinline__ void Start(const AttendParams& params, const Segment& segment,
                                        int kv_head, int space, int warp) {
    window = {&params, kv_head, segment.begin + warp, C::kWarps, segment.end};
    window.Load(space, slots.lane);
    more = window.template Take<C::kOnly == 0>(space, slots.lane, &page);
    if (more) slots.Send(page, false, count);
    more_next =
        C::kDepth == 2 && more && window.template Take<C::kOnly == 0>(space, slots.lane, &next);
    if (more_next) slots.Send(next, false, count + 1);
  }
  // Their V strips, once nothing else is in the place of slots.
  __device__ __forceinline__ void StartValues() const {
    if (more) slots.Send(page, true, count);
    if (more_next) slots.Send(next, true, count + 1);
  }
};

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
      if (more) slots.Send(next, value, own.count + 1);
    };
    ulonglong2 live_rows = {~0ull, ~0ull};
    if ((page.bits & PageEntry::kFull) == 0) live_rows = LoadLive(params.call.pages + page.index);
    const std::byte* keys = slots.Slot(false, own.count);
    const std::byte* values = slots.Slot(true, own.count);
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
        ScoreKeys<D, NT, 4, C::kPq, C::kOnly>(rung_of(page.key_rung()), keys, page_tokens,
                                              4 * chunk, at, pq, shared, s);
      }
      if (64 * (chunk + 1) == page_tokens) release(false);
      if (live == 0) continue;
      Softmax<D, NT, 4>(params.call.soft_cap, FactorsOf(rung_of(page.key_rung()), at, shared), live,
                        4 * chunk, at, s, state, page_sum);
      slots.Wait(true, own.count);
      SumValues<D, NT, 4, C::kPq, C::kOnly>(rung_of(page.value_rung()), values, page_tokens,
                                            4 * chunk, at, pq, live, s, state.o);
    }
    slots.Wait(true, own.count);
    release(true);
    if (params.call.page_lse != nullptr) {
      WritePageLse<NT>(params, place, page.index, state.reference, page_sum);
    }
    own.more = more;
  }
}

// Pages of kOnly: while values of one are summed, the scores of the next are computed. Those of a
// page that does not exist are not used.
template <class C>
__device__ __forceinline__ void WalkAhead(const AttendParams& params, const BlockPlace& place,
                                          int space, OwnPages<C>& own, typename C::Shared& shared,
                                          WarpState<C::D, C::NT>& state) {
  constexpr int D = C::D, NT = C::NT;
  constexpr auto kRung = static_cast<DeviceRung>(C::kOnly);
  if (!own.more) return;
  const LanePlace& at = place.at;
  const auto& slots = own.slots;
  const PqReader no_pq = {};
  const auto live_of = [&](const PageHead& page) {
    return (page.bits & PageEntry::kFull) != 0 ? ~uint64_t{0}
                                               : LoadLive(params.call.pages + page.index).x;
  };
  uint32_t n = own.count;
  Scores<NT, 4> s;
  slots.Wait(false, n);
  ScoreKeys<D, NT, 4, false, C::kOnly>(kRung, slots.Slot(false, n), 64, 0, at, no_pq, shared, s);
  __syncwarp();
  PageHead later = {};
  bool more_later =
      own.more_next && own.window.template Take<C::kOnly == 0>(space, at.lane, &later);
  if (more_later) slots.Send(later, false, n + 2);
  for (;;) {
    float page_sum[NT][2] = {};
    const uint64_t live = live_of(own.page);
    Softmax<D, NT, 4>(params.call.soft_cap, FactorsOf(kRung, at, shared), live, 0, at, s, state,
                      page_sum);
    slots.Wait(true, n);
    if (own.more_next) slots.Wait(false, n + 1);
    Scores<NT, 4> coming;
    ScoreKeys<D, NT, 4, false, C::kOnly>(kRung, slots.Slot(false, n + 1), 64, 0, at, no_pq, shared,
                                         coming);
    SumValues<D, NT, 4, false, C::kOnly>(kRung, slots.Slot(true, n), 64, 0, at, no_pq, live, s,
                                         state.o);
    __syncwarp();
    if (more_later) slots.Send(later, true, n + 2);
    if (params.call.page_lse != nullptr) {
      WritePageLse<NT>(params, place, own.page.index, state.reference, page_sum);
    }
    ++n;
    if (!own.more_next) break;
    own.page = own.next;
    own.next = later;
    own.more_next = more_later;
    more_later = more_later && own.window.template Take<C::kOnly == 0>(space, at.lane, &later);
    if (more_later) slots.Send(later, false, n + 2);
#pragma unroll
    for (int k = 0; k < 16 * NT; ++k) {
      s[k / (4 * NT)][k / 4 % NT][k % 4] = coming[k / (4 * NT)][k / 4 % NT][k % 4];
    }
  }
  own.count = n;
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
  Softmax<D, NT, 1>(params.call.soft_cap, shared.factor + 2 * at.i, live, first_tile, at, s, state,
                    page_sum);
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
  const int team = place.warp / 4, tile = place.warp % 4, lane = place.at.lane;
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
      AddFloatPage<C>(params, place.at, keys, bits, live, tile, shared, state, page_sum);
      if (params.call.page_lse != nullptr) {
        JoinPageLse<NT>(params, place, first + owner, round++, shared, state.reference, page_sum);
      }
    }
  }
}

// --- warps that share pages ---

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
    Softmax<D, NT, 1>(params.call.soft_cap, FactorsOf(key_rung, at, shared), live, tile, at, s,
                      state, page_sum);
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

// --- segments ---

// The queries of a segment, in shared memory.
template <class C>
__device__ __forceinline__ void SetUpQueries(const AttendParams& params, const BlockPlace& place,
                                             const Segment& segment, std::byte* shared_bytes,
                                             typename C::Shared& shared) {
  constexpr int kThreads = C::kWarps * 32;
  const int thread = place.warp * 32 + place.at.lane;
  shared.Sync();  // what was there before has been read
  if (thread == 0) shared.segment = segment;
  ClearQueries(place.num_heads, thread, kThreads, shared);
  LoadQueries<C::D>(params, segment.sequence, place.kv_head, place.first_head, place.num_heads,
                    place.warp, C::kWarps, place.at.lane, shared);
  if constexpr (C::kPq) FillPqTables<C::D>(params, place.kv_head, thread, kThreads, shared_bytes);
  shared.Sync();
  MakeFragments<C::D, C::NT>(params, place.num_heads, thread, kThreads, shared);
  FenceCopies();
  shared.Sync();
}

// What a space of a segment adds to one warp's state, with pages of its own. K strips of the first
// pages are on their way.
template <class C>
__device__ __forceinline__ void WalkOwn(const AttendParams& params, const BlockPlace& place,
                                        int space, std::byte* shared_bytes, OwnPages<C>& own,
                                        typename C::Shared& shared, WarpState<C::D, C::NT>& state) {
  own.StartValues();
  if constexpr (C::kAhead) {
    WalkAhead<C>(params, place, space, own, shared, state);
  } else {
    WalkPages<C>(params, place, space, shared_bytes, own, shared, state);
  }
  for (int kind = 0; kind <= kNumSpaces; ++kind) {
    if ((own.window.met >> kind & 1) != 0) shared.met[kind] = 1;
  }
  shared.Sync();
  if (space == kSpacePlain && shared.met[kNumSpaces] != 0) {
    WalkFloats<C>(params, place, shared, state);
  }
}

// The segments of a block by warps with pages of their own.
template <class C>
__device__ __forceinline__ void ReadOwnPages(const AttendParams& params, int warp, int lane,
                                             std::byte* shared_bytes, typename C::Shared& shared) {
  BlockPlace place;
  place.warp = warp;
  place.at = {lane, lane / 4, lane % 4};
  OwnPages<C> own;
  own.slots = {&params, shared_bytes, shared.barriers, warp, lane};
  BlockShare share;
  for (Segment segment; share.Next(params, lane, &segment);) {
    place.Take<C>(params, segment);
    int space = 31 - __clz(static_cast<int>(params.spaces));
    own.Start(params, segment, place.kv_head, space, warp);
    SetUpQueries<C>(params, place, segment, shared_bytes, shared);
    for (;;) {
      WarpState<C::D, C::NT> state;
      Reset<C::D, C::NT>(state);
      WalkOwn<C>(params, place, space, shared_bytes, own, shared, state);
      JoinWarps<C::D, C::NT, C::kWarps>(params, place.kv_head, place.num_heads, space, warp,
                                        place.at, shared, state);
      do {
        --space;
      } while (space >= 0 &&
               ((params.spaces >> space & 1) == 0 ||
                (shared.met[space] == 0 && (space != kSpacePlain || shared.met[kNumSpaces] == 0))));
      if (space < 0) break;
      FenceCopies();
      shared.Sync();  // scratch memory has been read
      own.Start(params, shared.segment, place.kv_head, space, warp);
    }
    LetNextKernelStart();
    shared.Sync();
    Finish<C::D, C::kWarps>(params, place.first_head, place.num_heads, warp, lane, shared);
  }
  WriteEmptySequences<C::D, C::kWarps>(params, warp, lane);
}

// By warps that share pages.
template <class C>
__device__ __forceinline__ void ReadSharedPages(const AttendParams& params, const PageRing& ring,
                                                int warp, int lane, std::byte* shared_bytes,
                                                typename C::Shared& shared) {
  BlockPlace place;
  place.warp = warp;
  place.at = {lane, lane / 4, lane % 4};
  RingReader in = {ring, {}, lane};
  in.at.Advance(warp / 4, ring.pages);
  BlockShare share;
  for (Segment segment; share.Next(params, lane, &segment);) {
    place.Take<C>(params, segment);
    SetUpQueries<C>(params, place, segment, shared_bytes, shared);
    uint32_t met = ~0u;
    for (int space = kNumSpaces - 1; space >= 0; --space) {
      if (((params.spaces & met) >> space & 1) == 0) continue;
      WarpState<C::D, C::NT> state;
      Reset<C::D, C::NT>(state);
      met = WalkRing<C>(params, place, in, shared, state);
      JoinWarps<C::D, C::NT, C::kWarps>(params, place.kv_head, place.num_heads, space, warp,
                                        place.at, shared, state);
    }
    LetNextKernelStart();
    shared.Sync();
    Finish<C::D, C::kWarps>(params, place.first_head, place.num_heads, warp, lane, shared);
  }
  WriteEmptySequences<C::D, C::kWarps>(params, warp, lane);
}

template <class C, int kBlocksPerSm>
__global__ void __launch_bounds__(C::kThreads, kBlocksPerSm)
    AttendPages(VARVE_KERNEL_PARAMETER(AttendParams) params) {
  using Shared = typename C::Shared;
  VARVE_DYNAMIC_SHARED(shared_words);
  auto* shared_bytes = reinterpret_cast<std::byte*>(shared_words);
  // Tables first: their place is then a constant of the code.
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes + (C::kPq ? params.table_bytes : 0u));
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const PageRing ring = {shared.barriers, shared.entries, shared_bytes + params.slots_offset,
                         params.slot_bytes, params.ring_pages};
  InitRing(ring, C::kOwnPages ? 1 : 4, threadIdx.x, C::kThreads);
  __syncthreads();
  WaitForEarlierKernels();
  if constexpr (C::kOwnPages) {
    ReadOwnPages<C>(params, warp, lane, shared_bytes, shared);
  } else if (warp == C::kWarps) {
    SendShares<C>(params, ring, lane);
  } else {
    ReadSharedPages<C>(params, ring, warp, lane, shared_bytes, shared);
  }
}

template <class C, int kBlocksPerSm>
AttendKernel MakeKernel() {
  using Shared = typename C::Shared;
  AttendKernel kernel;
  kernel.function = reinterpret_cast<const void*>(&AttendPages<C, kBlocksPerSm>);
  kernel.warps = C::kWarps;
  kernel.threads = C::kThreads;
  kernel.blocks_per_sm = kBlocksPerSm;
  kernel.depth = C::kDepth;
  kernel.heads = Shared::kHeads;
  kernel.fixed_bytes = sizeof(Shared);
  kernel.order_bytes = Shared::kSetSize * sizeof(uint2);
  kernel.scratch_head_bytes = Shared::kScratchHeadBytes;
  if (C::kPq) kernel.buffer_bytes = C::kWarps * PqBuffer<C::D>::kBytes;
  return kernel;
}

template <int D, int NT, int kTiles, int kBlocksPerSm, int kWarps = 4, bool kPq = false>
AttendKernel MakeAttendKernel() {
  return MakeKernel<AttendConfig<D, NT, kTiles, kWarps, kPq, 0, false>, kBlocksPerSm>();
}
template <int D, DeviceRung kRung, int kTiles, int kBlocksPerSm, int kWarps, bool kAhead = false>
AttendKernel MakeOneRungKernel() {
  constexpr bool kPq = kRung == DeviceRung::kPq;
  return MakeKernel<AttendConfig<D, 1, kTiles, kWarps, kPq, static_cast<int>(kRung), kAhead>,
                    kBlocksPerSm>();
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
