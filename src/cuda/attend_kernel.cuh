// The attention kernel. A block works on one split of the pages of one (sequence, KV head), for up
// to 8 * NT query heads. Strips come into shared memory ahead of their use (strip_slots.cuh), the
// first ones while the queries are prepared; from there they go to registers in the order in which
// the matrix products want them (key_scores.cuh, value_sums.cuh). With kTiles = 4 each warp takes
// pages of its own, 64 tokens at a time. With kTiles = 1, for floats alone, the four warps take one
// tile of 16 tokens each of every page. Each warp keeps a softmax of its own (softmax_state.cuh).
// At the end they are joined, and the last block of a head joins the splits (join_states.cuh).
//
// Pages of all rungs may be mixed. Values of different spaces (plain, turned, pq) are summed in
// passes of their own over the same records; few layers have more than two.

#ifndef VARVE_CUDA_ATTEND_KERNEL_CUH_
#define VARVE_CUDA_ATTEND_KERNEL_CUH_

#include <cstdint>
#include <type_traits>

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

// What one page adds to the sum of each head, of a warp that has all of it.
template <int NT>
__device__ __forceinline__ void WritePageLse(const AttendParams& params, const BlockPlace& place,
                                             int page, const float (&reference)[NT][2],
                                             const float (&page_sum)[NT][2]) {
  float* out = params.call.page_lse + static_cast<int64_t>(page) * params.call.query_heads +
               place.first_head;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = SumOverTokens(page_sum[nt][h]);
      const int head = 8 * nt + 2 * place.at.i + h;
      if (place.at.g == 0 && head < place.num_heads) {
        out[head] = (reference[nt][h] + Log2(sum)) * kLn2;
      }
    }
  }
}

// The same of a page that the warps of a block share: all of them call.
template <int NT, int kWarps, class Shared>
__device__ __forceinline__ void WriteSharedPageLse(const AttendParams& params,
                                                   const BlockPlace& place, int page,
                                                   uint32_t round, Shared& shared,
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
  __syncthreads();
  if (place.warp != 0 || at.lane >= place.num_heads) return;
  float most = kLeast, sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.warp_max[round % 2][w][at.lane].x);
  for (int w = 0; w < kWarps; ++w) {
    const float2 part = shared.warp_max[round % 2][w][at.lane];
    sum = fmaf(part.y, Exp2(part.x - most), sum);
  }
  params.call
      .page_lse[static_cast<int64_t>(page) * params.call.query_heads + place.first_head + at.lane] =
      (most + Log2(sum)) * kLn2;
}

// A warp's way through its pages, one space after the other.
template <int D, int NT, int kWarps, class Shared>
struct PageWalk {
  const AttendParams& params;
  const BlockPlace& place;
  Shared& shared;
  StripSlots slots;
  PageCursor cursor;
  PageHead page;
  int index = 0;
  bool more = false;
  uint32_t round = 0;  // of all spaces

  __device__ __forceinline__ PageWalk(const AttendParams& p, const BlockPlace& where, Shared& s)
      : params(p), place(where), shared(s) {
    slots = {{&params, place.kv_head},
             shared.barriers + 2 * place.warp,
             shared.template Scratch<std::byte>() + 2 * place.warp * params.slot_bytes};
  }

  // Sends for the first strips. Barriers have been made, and nobody reads the slots.
  __device__ __forceinline__ void Start(int space) {
    cursor.Start(params.call.pages, space, place.begin + place.warp, kWarps, place.end);
    more = cursor.Take(&page, &index);
    if (!more) return;
    slots.Send(page, false, place.at.lane);
    slots.Send(page, true, place.at.lane);
  }

  __device__ __forceinline__ void Run(WarpState<D, NT>& state) {
    const int page_tokens = params.call.shape.page_tokens;
    const LanePlace& at = place.at;
    PageHead next;
    int next_index = 0;
    const auto release = [&](bool value) {  // all lanes have read the strip: the next may come
      __syncwarp();
      if (more) slots.Send(next, value, at.lane);
    };
    for (; more; ++round) {
      more = cursor.Take(&next, &next_index);
      const ulonglong2 live_rows = LoadLive(params.call.pages + index);
      const std::byte* keys = slots.Wait(page, false, round % 2);
      const std::byte* values = nullptr;
      float page_sum[NT][2] = {};
      for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
        const uint64_t live = chunk == 0 ? live_rows.x : live_rows.y;
        Scores<NT, 4> s;
        if (live != 0) {
          ScoreKeys<D, NT>(page.key_rung(), keys, page_tokens, 4 * chunk, at, shared, s);
        }
        if (64 * (chunk + 1) == page_tokens) release(false);
        if (live == 0) continue;
        Softmax<D, NT, 4>(params, &shared.factor[2 * at.i], live, at, s, state, page_sum);
        if (values == nullptr) values = slots.Wait(page, true, round % 2);
        SumValues<D, NT>(page.value_rung(), values, page_tokens, 4 * chunk, at, live, s, state.o);
      }
      // A page without a live row has not been waited for.
      if (values == nullptr) slots.Wait(page, true, round % 2);
      release(true);
      if (params.call.page_lse != nullptr) {
        WritePageLse<NT>(params, place, index, state.reference, page_sum);
      }
      page = next;
      index = next_index;
    }
  }
};

// A warp's way through its tiles of all pages of the block. Floats have one space.
template <int D, int NT, int kWarps, class Shared>
struct TileWalk {
  const AttendParams& params;
  const BlockPlace& place;
  Shared& shared;
  TileSlots<D> slots;
  PageCursor sent;  // runs ahead of the one that is read
  PageCursor read;

  __device__ __forceinline__ TileWalk(const AttendParams& p, const BlockPlace& where, Shared& s)
      : params(p), place(where), shared(s) {
    const int ring = 2 * params.ring_slots * place.warp;
    slots = {{&params, place.kv_head},
             shared.barriers + ring,
             params.slot_bytes == 0
                 ? nullptr
                 : shared.template Scratch<std::byte>() + ring * params.slot_bytes,
             place.warp};
  }

  __device__ __forceinline__ void Start(int space) {
    sent.Start(params.call.pages, space, place.begin, 1, place.end);
    read.Start(params.call.pages, space, place.begin, 1, place.end);
    PageHead page;
    int index;
    for (int slot = 0; slot < params.ring_slots && sent.Take(&page, &index); ++slot) {
      slots.Send(page, false, slot, place.at.lane);
      slots.Send(page, true, slot, place.at.lane);
    }
  }

  __device__ __forceinline__ void Run(WarpState<D, NT>& state) {
    const int num_chunks = params.call.shape.page_tokens / 64;
    const LanePlace& at = place.at;
    PageHead page, next;
    int index, next_index, slot = 0;
    uint32_t phase = 0;
    for (uint32_t round = 0; read.Take(&page, &index); ++round) {
      const bool more = sent.Take(&next, &next_index);
      const ulonglong2 live_rows = LoadLive(params.call.pages + index);
      float page_sum[NT][2] = {};
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        const bool last = chunk + 1 == num_chunks;
        const auto rows = static_cast<uint32_t>(
            (chunk == 0 ? live_rows.x : live_rows.y) >> (16 * place.warp) & 0xFFFF);
        const uint64_t live = rows == 0xFFFF ? ~uint64_t{0} : rows;
        int page_tokens;
        const std::byte* keys = slots.Wait(page, false, slot, phase, chunk, &page_tokens);
        Scores<NT, 1> s;
        if (live != 0) ScoreFloatKeys<D, NT>(page.key_rung(), keys, at, shared, s);
        __syncwarp();
        if (last && more) slots.Send(next, false, slot, at.lane);
        const std::byte* values = slots.Wait(page, true, slot, phase, chunk, &page_tokens);
        if (live != 0) {
          Softmax<D, NT, 1>(params, &shared.factor[2 * at.i], live, at, s, state, page_sum);
          SumFloatValues<D, NT>(page.value_rung(), values, page_tokens, at, live, s, state.o);
        }
        __syncwarp();
        if (last && more) slots.Send(next, true, slot, at.lane);
      }
      if (params.call.page_lse != nullptr) {
        WriteSharedPageLse<NT, kWarps>(params, place, index, round, shared, state.reference,
                                       page_sum);
      }
      if (++slot == params.ring_slots) slot = 0, phase ^= 1;
    }
  }
};

template <int D, int NT, int kTiles, int kWarps, class Shared>
__device__ __forceinline__ void WalkSpaces(const AttendParams& params, const BlockPlace& place,
                                           Shared& shared) {
  using Walk = std::conditional_t<kTiles == 4, PageWalk<D, NT, kWarps, Shared>,
                                  TileWalk<D, NT, kWarps, Shared>>;
  Walk walk(params, place, shared);
  int space = __ffs(params.spaces) - 1;
  walk.Start(space);
  LoadQueries<D>(params, place.sequence, place.first_head, place.num_heads, place.warp, kWarps,
                 place.at.lane, shared);
  __syncthreads();
  MakeFragments<D, NT>(params.orders, threadIdx.x, kWarps * 32, shared);
  __syncthreads();
  ClearTotal<D>(threadIdx.x, kWarps * 32, shared);
  __syncthreads();
  for (uint32_t rest = params.spaces;;) {
    WarpState<D, NT> state;
    Reset<D, NT>(state);
    walk.Run(state);
    JoinWarps<D, NT, kWarps>(space, place.warp, place.at, shared, state);
    rest &= rest - 1;
    if (rest == 0) return;
    __syncthreads();  // what was joined has been read
    FenceCopies();
    space = __ffs(rest) - 1;
    walk.Start(space);
  }
}

// Grid: splits, KV heads times head_chunks, sequences.
template <int D, int NT, int kTiles, int kBlocksPerSm>
__global__ void __launch_bounds__(4 * 32, kBlocksPerSm)
    AttendPages(VARVE_KERNEL_PARAMETER(AttendParams) params) {
  constexpr int kWarps = 4;
  using Shared = BlockShared<D, NT, kWarps>;
  VARVE_DYNAMIC_SHARED(shared_bytes);
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int lane = threadIdx.x % 32;
  BlockPlace place;
  place.warp = threadIdx.x / 32;
  place.at = {lane, lane / 4, lane % 4};
  place.sequence = blockIdx.z;
  place.kv_head = blockIdx.y / params.head_chunks;
  const int head_in_group = blockIdx.y % params.head_chunks * Shared::kHeads;
  place.first_head = place.kv_head * params.group + head_in_group;
  place.num_heads = min(params.group - head_in_group, Shared::kHeads);
  const int table = params.call.page_begin[place.sequence];
  const int64_t num_pages = params.call.page_begin[place.sequence + 1] - table;
  place.begin = table + static_cast<int>(num_pages * blockIdx.x / params.splits);
  place.end = table + static_cast<int>(num_pages * (blockIdx.x + 1) / params.splits);

  if (threadIdx.x < kMaxBarriers) InitBarrier(shared.barriers + threadIdx.x);
  if (threadIdx.x == 0) {
    shared.rows_offset = params.rows_offset;
    shared.scratch_offset = params.scratch_offset;
  }
  FenceCopies();
  __syncthreads();
  if (place.begin < place.end) {
    WalkSpaces<D, NT, kTiles, kWarps>(params, place, shared);
  } else {
    ClearTotal<D>(threadIdx.x, kWarps * 32, shared);
  }
  __syncthreads();
  Finish<D, kWarps>(params, place.sequence, place.first_head, place.num_heads, place.warp, lane,
                    shared);
}

template <int D, int NT, int kTiles, int kBlocksPerSm>
AttendKernel MakeAttendKernel() {
  using Shared = BlockShared<D, NT, 4>;
  AttendKernel kernel;
  kernel.function = reinterpret_cast<const void*>(&AttendPages<D, NT, kTiles, kBlocksPerSm>);
  kernel.warps = 4;
  kernel.blocks_per_sm = kBlocksPerSm;
  kernel.tiles = kTiles;
  kernel.heads = 8 * NT;
  kernel.fixed_bytes = sizeof(Shared);
  kernel.order_bytes = Shared::kSetSize * sizeof(uint2);
  kernel.row_bytes = sizeof(typename Shared::Rows) / Shared::kRowSets;
  kernel.total_bytes = sizeof(typename Shared::Total);
  kernel.scratch_bytes = sizeof(typename Shared::Merge);
  return kernel;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
