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

// What one page adds to the sum of each head, in shared memory: of one warp, or of all for its
// tiles.
template <int NT, int kTiles, int kWarps, class Shared>
__device__ __forceinline__ void WritePageLse(const AttendParams& params, const BlockPlace& place,
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
  if constexpr (kTiles == 4) {
    __syncwarp();
    if (at.lane < place.num_heads) out[at.lane] = (mine[at.lane].x + log2f(mine[at.lane].y)) * kLn2;
    __syncwarp();
    return;
  }
  __syncthreads();
  if (place.warp != 0 || at.lane >= place.num_heads) return;
  float most = kLeast, sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.warp_max[round % 2][w][at.lane].x);
  for (int w = 0; w < kWarps; ++w) {
    const float2 part = shared.warp_max[round % 2][w][at.lane];
    sum = fmaf(part.y, Exp2(part.x - most), sum);
  }
  out[at.lane] = (most + log2f(sum)) * kLn2;
}

// One warp's share of the pages of one space.
template <int D, int NT, int kTiles, int kWarps, bool kPq, class Shared>
__device__ __forceinline__ void WalkPages(const AttendParams& params, const BlockPlace& place,
                                          int space, SharedPlace tables, Shared& shared,
                                          WarpState<D, NT>& state) {
  constexpr bool kOwnPages = kTiles == 4;
  const int page_tokens = params.call.shape.page_tokens;
  const int reader = kOwnPages ? place.warp : 0;
  const bool sends = kOwnPages || place.warp == 0;
  const LanePlace& at = place.at;
  const StripSlots slots = {&params, shared.barriers + 2 * reader,
                            shared.template Scratch<std::byte>() + 2 * reader * params.slot_bytes,
                            place.kv_head};
  PqReader pq = {};
  if constexpr (kPq) {
    const PageShape& shape = params.call.shape;
    pq = {{shape.page_tokens, shape.pq_subspaces, shape.pq_bits},
          D / shape.pq_subspaces,
          tables,
          SharedPlaceOf(shared.template Scratch<std::byte>() + 2 * kWarps * params.slot_bytes +
                        place.warp * PqBuffer<D>::kBytes)};
  }
  // Every warp of a reader walks the records by itself.
  PageCursor cursor = {params.call.pages,      space,     place.begin + reader,
                       kOwnPages ? kWarps : 1, place.end, {}};
  cursor.Start();
  PageHead page, next;
  int index = 0, next_index = 0;
  bool more = cursor.Take(&page, &index);
  if (more && sends) {
    slots.Send(page, false, at.lane);
    slots.Send(page, true, at.lane);
  }
  const auto release = [&](bool value) {  // all have read the strip: the next may come
    kOwnPages ? __syncwarp() : __syncthreads();
    if (sends && more) slots.Send(next, value, at.lane);
  };
  for (uint32_t round = 0; more; ++round) {
    more = cursor.Take(&next, &next_index);
    const ulonglong2 live_rows = LoadLive(params.call.pages + index);
    const std::byte* keys = slots.Wait(page, false, round % 2);
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
      Softmax<D, NT, kTiles>(params, &shared.factor[2 * at.i], live, first_tile, at, s, state,
                             page_sum);
      if (values == nullptr) values = slots.Wait(page, true, round % 2);
      SumValues<D, NT, kTiles, kPq>(page.value_rung(), values, page_tokens, first_tile, at, pq,
                                    live, s, state.o);
    }
    release(true);
    if (params.call.page_lse != nullptr) {
      WritePageLse<NT, kTiles, kWarps>(params, place, index, round, shared, state.reference,
                                       page_sum);
    }
    page = next;
    index = next_index;
  }
}

template <int D, int NT, int kTiles, int kWarps, bool kPq, class Shared>
__device__ __forceinline__ void WalkSpaces(const AttendParams& params, const BlockPlace& place,
                                           std::byte* tables, Shared& shared) {
  LoadQueries<D>(params, place.sequence, place.kv_head, place.first_head, place.num_heads,
                 place.warp, kWarps, place.at.lane, shared);
  if constexpr (kPq) FillPqTables<D>(params, place.kv_head, threadIdx.x, kWarps * 32, tables);
  __syncthreads();
  MakeFragments<D, NT>(params.orders, threadIdx.x, kWarps * 32, shared);
  for (int space = 0; space < kNumSpaces; ++space) {
    if ((params.spaces >> space & 1) == 0) continue;
    __syncthreads();  // scratch memory has been read
    if (threadIdx.x < kMaxBarriers) InitBarrier(shared.barriers + threadIdx.x);
    FenceCopies();
    __syncthreads();
    WarpState<D, NT> state;
    Reset<D, NT>(state);
    WalkPages<D, NT, kTiles, kWarps, kPq>(params, place, space, SharedPlaceOf(tables), shared,
                                          state);
    JoinWarps<D, NT, kWarps>(params, place.kv_head, space, place.warp, place.at, shared, state);
    if (threadIdx.x < kMaxBarriers) DropBarrier(shared.barriers + threadIdx.x);
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
  const int table = params.call.page_begin[place.sequence];
  const int64_t num_pages = params.call.page_begin[place.sequence + 1] - table;
  place.begin = table + static_cast<int>(num_pages * blockIdx.x / params.splits);
  place.end = table + static_cast<int>(num_pages * (blockIdx.x + 1) / params.splits);

  for (int i = threadIdx.x; i < Shared::kHeads * D; i += kWarps * 32) {
    shared.total[i / D][i % D] = 0.0f;
  }
  if (threadIdx.x < Shared::kHeads) shared.total_max[threadIdx.x] = {kLeast, 0.0f};
  if (threadIdx.x == 0) shared.scratch_offset = params.scratch_offset;
  __syncthreads();
  if (place.begin < place.end) {
    WalkSpaces<D, NT, kTiles, kWarps, kPq>(params, place,
                                           reinterpret_cast<std::byte*>(shared_bytes), shared);
  }
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
  kernel.scratch_bytes = sizeof(typename Shared::Rows) > sizeof(typename Shared::Merge)
                             ? sizeof(typename Shared::Rows)
                             : sizeof(typename Shared::Merge);
  if (kPq) kernel.buffer_bytes = kWarps * PqBuffer<D>::kBytes;
  return kernel;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
