// The attention kernel. A block works on one split of the pages of one (sequence, KV head), for up
// to 8 * NT query heads. Strips come into shared memory ahead of their use (strip_slots.cuh); from
// there they go to registers in the order in which the matrix products want them (key_scores.cuh,
// value_sums.cuh). With kTiles = 4 each warp takes pages of its own, 64 tokens at a time; with
// kTiles = 1 the four warps take one tile of 16 tokens each of every page, which suits strips too
// large for four rings. Each warp keeps a softmax of its own (softmax_state.cuh). At the end they
// are joined, and the last block of a head joins the splits (join_states.cuh).
//
// Pages of all rungs may be mixed. Values of different spaces (plain, turned, pq) are summed in
// passes of their own over the same records; few layers have more than two.

#ifndef VARVE_CUDA_ATTEND_KERNEL_CUH_
#define VARVE_CUDA_ATTEND_KERNEL_CUH_

#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/join_states.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/rung_dispatch.cuh"
#include "cuda/softmax_state.cuh"
#include "cuda/strip_slots.cuh"

namespace varve::cuda {

// Which work a block has, and this thread's place in it.
struct BlockPlace {
  int sequence;
  int kv_head;
  int first_head;  // query head
  int num_heads;
  int begin;  // pages
  int end;
  int warp;
  LanePlace at;
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

// Of all warps of a block for their tiles, by way of shared memory.
template <int NT, int kWarps, class Shared>
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
  __syncthreads();
  if (place.warp != 0 || at.lane >= place.num_heads) return;
  float most = kLeast, sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.warp_max[round % 2][w][at.lane].x);
  for (int w = 0; w < kWarps; ++w) {
    const float2 part = shared.warp_max[round % 2][w][at.lane];
    sum = fmaf(part.y, Exp2(part.x - most), sum);
  }
  out[at.lane] = (most + Log2(sum)) * kLn2;
}

// By whoever has the page: a warp alone or, by tiles, all of the block.
template <int NT, bool kOwnPages, int kWarps, class Shared>
__device__ __forceinline__ void ReportPageLse(const AttendParams& params, const BlockPlace& place,
                                              int page, uint32_t round, Shared& shared,
                                              const float (&reference)[NT][2],
                                              const float (&page_sum)[NT][2]) {
  if (params.call.page_lse == nullptr) return;
  if constexpr (kOwnPages) {
    WritePageLse<NT>(params, place, page, reference, page_sum);
  } else {
    JoinPageLse<NT, kWarps>(params, place, page, round, shared, reference, page_sum);
  }
}

// The slots of this warp's reader: K of all readers, then V.
template <int kTiles, int kWarps, class Shared>
__device__ __forceinline__ StripSlots SlotsOf(const AttendParams& params, const BlockPlace& place,
                                              Shared& shared) {
  constexpr int kReaders = kTiles == 4 ? kWarps : 1;
  const int reader = kTiles == 4 ? place.warp : 0;
  std::byte* scratch = shared.template Scratch<std::byte>(params);
  return {
      shared.barriers + 2 * reader,
      {scratch + reader * params.slot_bytes, scratch + (kReaders + reader) * params.slot_bytes}};
}

// The first page of a space; its K strip is sent for.
template <int kTiles, int kWarps, class Shared>
__device__ __forceinline__ PageHead StartSpace(const AttendParams& params, const BlockPlace& place,
                                               int space, PageWindow& window, Shared& shared) {
  window.first = place.begin + (kTiles == 4 ? place.warp : 0);
  window.Load(space, place.at.lane);
  PageHead page = {0, 0, -1};
  if (!window.Take(space, place.at.lane, &page)) return page;
  if (kTiles == 4 || place.warp == 0) {
    SlotsOf<kTiles, kWarps>(params, place, shared).Send(window, page, false, place.at.lane);
  }
  return page;
}

// What this warp reads pq strips with: its buffer is behind the slots. Nothing without pq.
template <int D, int kWarps, bool kPq, class Shared>
__device__ __forceinline__ PqReader PqReaderOf(const AttendParams& params, const BlockPlace& place,
                                               SharedPlace tables, Shared& shared) {
  PqReader pq = {};
  if constexpr (kPq) {
    const PageShape& shape = params.call.shape;
    pq = {{shape.page_tokens, shape.pq_subspaces, shape.pq_bits},
          D / shape.pq_subspaces,
          tables,
          SharedPlaceOf(shared.template Scratch<std::byte>(params) +
                        2 * kWarps * params.slot_bytes + place.warp * PqBuffer<D>::kBytes)};
  }
  return pq;
}

// One warp's share of the pages of one space, from `first` on, whose K strip is on its way.
template <int D, int NT, int kTiles, int kWarps, bool kPq, class Shared>
__device__ __forceinline__ void WalkPages(const AttendParams& params, const BlockPlace& place,
                                          int space, const PageHead& first, PageWindow& window,
                                          SharedPlace tables, Shared& shared,
                                          WarpState<D, NT>& state) {
  constexpr bool kOwnPages = kTiles == 4;
  const int page_tokens = params.call.shape.page_tokens;
  const bool sends = kOwnPages || place.warp == 0;
  const LanePlace& at = place.at;
  const StripSlots slots = SlotsOf<kTiles, kWarps>(params, place, shared);
  const PqReader pq = PqReaderOf<D, kWarps, kPq>(params, place, tables, shared);
  PageHead page = first, next;
  bool more = page.owner >= 0;
  if (more && sends) slots.Send(window, page, true, at.lane);
  const auto release = [&](bool value) {  // all have read the strip: the next may come
    kOwnPages ? __syncwarp() : __syncthreads();
    if (sends && more) slots.Send(window, next, value, at.lane);
  };
  for (uint32_t round = 0; more; ++round) {
    const std::byte* lying[2] = {nullptr, nullptr};
    if ((page.bits & PageHead::kKeysLie) != 0) lying[0] = window.PlaceOf(page, false);
    if ((page.bits & PageHead::kValuesLie) != 0) lying[1] = window.PlaceOf(page, true);
    more = window.Take(space, at.lane, &next);
    ulonglong2 live_rows = {~0ull, ~0ull};
    if ((page.bits & PageHead::kFull) == 0) live_rows = LoadLive(params.call.pages + page.index);
    const float* factors =
        (IsTurnedRung(page.key_rung()) ? shared.turned_factor : shared.factor) + 2 * at.i;
    const std::byte* keys = slots.Wait(false, round % 2);
    if (lying[0] != nullptr) keys = lying[0];
    const std::byte* values = nullptr;
    float page_sum[NT][2] = {};
    for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
      const uint64_t live = chunk == 0 ? live_rows.x : live_rows.y;
      const int first_tile = 4 * chunk + (kOwnPages ? 0 : place.warp);
      Scores<NT, kTiles> s;
      if (live != 0) {
        ScoreKeys<D, NT, kTiles, kPq>(page.key_rung(), keys, page_tokens, first_tile, at, pq,
                                      shared, s);
      }
      if (64 * (chunk + 1) == page_tokens) release(false);
      if (live == 0) continue;
      Softmax<D, NT, kTiles>(params.call.soft_cap, factors, live, first_tile, at, s, state,
                             page_sum);
      if (values == nullptr) {
        values = slots.Wait(true, round % 2);
        if (lying[1] != nullptr) values = lying[1];
      }
      SumValues<D, NT, kTiles, kPq>(page.value_rung(), values, page_tokens, first_tile, at, pq,
                                    live, s, state.o);
    }
    release(true);
    ReportPageLse<NT, kOwnPages, kWarps>(params, place, page.index, round, shared, state.reference,
                                         page_sum);
    page = next;
  }
}

// One tile of a page of floats that is read where it lies.
template <int D, int NT, bool kBrainKeys, class Shared>
__device__ __forceinline__ void AddFloatTile(const AttendParams& params, const BlockPlace& place,
                                             const std::byte* keys, DeviceRung value_rung,
                                             int first_tile, uint64_t live, Shared& shared,
                                             WarpState<D, NT>& state, float (&page_sum)[NT][2]) {
  const int page_tokens = params.call.shape.page_tokens;
  const LanePlace& at = place.at;
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

// Pages of floats in a kernel whose warps have pages of their own: a warp alone would wait for
// memory many times over while the others stand idle, so four share each page, a tile each. Where
// other pages of the space keep the others busy, that costs more than it gains.
template <int D, int NT, int kWarps, class Shared>
__device__ __forceinline__ void WalkFloats(const AttendParams& params, const BlockPlace& place,
                                           Shared& shared, WarpState<D, NT>& state) {
  static_assert(kWarps >= 4);
  PageWindow window = {&params, place.kv_head, place.begin, 1, place.end, false};
  window.Load(kSpacePlain, place.at.lane);
  PageHead page;
  for (uint32_t round = 0; window.Take(kSpacePlain, place.at.lane, &page);) {
    if (!IsLyingFloats(page.bits)) continue;
    const std::byte* keys = window.PlaceOf(page, false);
    const ulonglong2 live_rows = LoadLive(params.call.pages + page.index);
    float page_sum[NT][2] = {};
    for (int chunk = 0; place.warp < 4 && chunk < params.call.shape.page_tokens / 64; ++chunk) {
      const uint64_t live = chunk == 0 ? live_rows.x : live_rows.y;
      const int tile = 4 * chunk + place.warp;
      if ((live >> (16 * place.warp) & 0xFFFF) == 0) continue;
      if (page.key_rung() == DeviceRung::kF16) {
        AddFloatTile<D, NT, false>(params, place, keys, page.value_rung(), tile, live, shared,
                                   state, page_sum);
      } else {
        AddFloatTile<D, NT, true>(params, place, keys, page.value_rung(), tile, live, shared, state,
                                  page_sum);
      }
    }
    if (params.call.page_lse != nullptr) {
      JoinPageLse<NT, kWarps>(params, place, page.index, round++, shared, state.reference,
                              page_sum);
    }
  }
}

template <class Shared>
__device__ __forceinline__ void InitBarriers(Shared& shared) {
  if (threadIdx.x < kMaxBarriers) InitBarrier(shared.barriers + threadIdx.x);
  FenceCopies();
}

template <int D, int NT, int kTiles, int kWarps, bool kPq, class Shared>
__device__ __forceinline__ void WalkSpaces(const AttendParams& params, const BlockPlace& place,
                                           std::byte* tables, Shared& shared) {
  PageWindow window = {&params,   place.kv_head,
                       0,         kTiles == 4 ? kWarps : 1,
                       place.end, kTiles == 4 && params.floats_apart};
  int space = __ffs(params.spaces) - 1;
  PageHead first = StartSpace<kTiles, kWarps>(params, place, space, window, shared);
  LoadQueries<D>(params, place.sequence, place.kv_head, place.first_head, place.num_heads,
                 place.warp, kWarps, place.at.lane, shared);
  if constexpr (kPq) FillPqTables<D>(params, place.kv_head, threadIdx.x, kWarps * 32, tables);
  __syncthreads();
  MakeFragments<D, NT>(params, place.num_heads, threadIdx.x, kWarps * 32, shared);
  FenceCopies();
  __syncthreads();
  for (;;) {
    WarpState<D, NT> state;
    Reset<D, NT>(state);
    WalkPages<D, NT, kTiles, kWarps, kPq>(params, place, space, first, window,
                                          SharedPlaceOf(tables), shared, state);
    if (kTiles == 4 && params.floats_apart && space == kSpacePlain) {
      if (window.met_floats) shared.met_floats = 1;
      __syncthreads();
      if (shared.met_floats != 0) WalkFloats<D, NT, kWarps>(params, place, shared, state);
    }
    JoinWarps<D, NT, kWarps>(params, place.kv_head, space, place.warp, place.at, shared, state);
    const uint32_t more = params.spaces >> (space + 1);
    if (more == 0) return;
    space += __ffs(more);
    __syncthreads();  // scratch memory has been read
    if (threadIdx.x < kMaxBarriers) DropBarrier(shared.barriers + threadIdx.x);
    __syncthreads();
    InitBarriers(shared);
    __syncthreads();
    first = StartSpace<kTiles, kWarps>(params, place, space, window, shared);
  }
}

// Grid: splits, KV heads times head_chunks, sequences.
template <int D, int NT, int kTiles, int kBlocksPerSm, int kWarps, bool kPq>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerSm)
    AttendPages(VARVE_KERNEL_PARAMETER(AttendParams) params) {
  using Shared = BlockShared<D, NT, kWarps>;
  VARVE_DYNAMIC_SHARED(shared_bytes);
  // Tables first: their place is then a constant of the code.
  Shared& shared =
      *reinterpret_cast<Shared*>(shared_bytes + (kPq ? params.table_bytes : uint32_t{0}));
  const int lane = threadIdx.x % 32;
  BlockPlace place;
  place.warp = threadIdx.x / 32;
  place.at = {lane, lane / 4, lane % 4};
  place.sequence = blockIdx.z;
  place.kv_head = blockIdx.y / params.head_chunks;
  const int head_in_group = blockIdx.y % params.head_chunks * Shared::kHeads;
  place.first_head = place.kv_head * params.group + head_in_group;
  place.num_heads = min(params.group - head_in_group, Shared::kHeads);
  ClearQueries(place.num_heads, threadIdx.x, kWarps * 32, shared);
  InitBarriers(shared);
  WaitForEarlierKernels();
  const int table = params.call.page_begin[place.sequence];
  // A table of 2^26 pages would be 4 billion tokens.
  const auto num_pages = static_cast<uint32_t>(params.call.page_begin[place.sequence + 1] - table);
  const auto splits = static_cast<uint32_t>(params.splits);
  place.begin = table + static_cast<int>(num_pages * blockIdx.x / splits);
  place.end = table + static_cast<int>(num_pages * (blockIdx.x + 1) / splits);
  __syncthreads();
  if (place.begin < place.end) {
    WalkSpaces<D, NT, kTiles, kWarps, kPq>(params, place,
                                           reinterpret_cast<std::byte*>(shared_bytes), shared);
  }
  LetNextKernelStart();
  __syncthreads();
  Finish<D, kWarps>(params, place.sequence, place.first_head, place.num_heads, place.warp, lane,
                    shared);
}

template <int D, int NT, int kTiles, int kBlocksPerSm, int kWarps = 4, bool kPq = false>
AttendKernel MakeAttendKernel() {
  using Shared = BlockShared<D, NT, kWarps>;
  AttendKernel kernel;
  kernel.function =
      reinterpret_cast<const void*>(&AttendPages<D, NT, kTiles, kBlocksPerSm, kWarps, kPq>);
  kernel.warps = kWarps;
  kernel.blocks_per_sm = kBlocksPerSm;
  kernel.readers = kTiles == 4 ? kWarps : 1;
  kernel.heads = 8 * NT;
  kernel.fixed_bytes = sizeof(Shared);
  kernel.order_bytes = Shared::kSetSize * sizeof(uint2);
  kernel.row_bytes = sizeof(typename Shared::Rows);
  kernel.merge_bytes = sizeof(typename Shared::Merge);
  if (kPq) kernel.buffer_bytes = kWarps * PqBuffer<D>::kBytes;
  return kernel;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
