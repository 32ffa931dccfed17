// The attention kernel. Work is shared out evenly over the blocks (block_share.cuh): a block has
// some pages of one (sequence, KV head), or of several behind one another, for up to 8 * NT query
// heads. Strips come into shared memory ahead of their use; from there they go to registers in the
// order in which the matrix products want them (key_scores.cuh, value_sums.cuh). With kTiles = 4
// each warp takes pages of its own, 64 tokens at a time, and sends for their strips itself
// (own_pages.cuh); with kTiles = 1 four warps take one tile of 16 tokens each of every page,
// which suits strips too large for a warp, and one more warp sends (shared_pages.cuh). Each warp
// keeps a softmax of its own (softmax_state.cuh). At the end of a head they are joined, and the
// last of its blocks joins those (join_states.cuh).
//
// Pages of all rungs may be mixed. Values of different spaces (plain, turned, pq) are summed in
// passes of their own over the same records; few layers have more than two. Most pages of a layer
// have one rung: for that there are kernels that know no other (kOnly).
//
// What a block does before its first page and after its last counts where there are few pages, and
// is a tenth of all where there are many: queries go to their places from registers, loads start
// before what waits for others.

#ifndef VARVE_CUDA_ATTEND_KERNEL_CUH_
#define VARVE_CUDA_ATTEND_KERNEL_CUH_

#include <cstdint>

#include "cuda/attend_config.cuh"
#include "cuda/own_pages.cuh"
#include "cuda/shared_pages.cuh"

namespace varve::cuda {

// The queries of a segment, in shared memory.
template <class C>
__device__ __forceinline__ void SetUpQueries(const AttendParams& params, const BlockPlace& place,
                                             const Segment& segment, TensorRow<C::D / 32>& query,
                                             typename C::Shared& shared) {
  constexpr int kThreads = C::kWarps * 32;
  constexpr uint32_t kOrders = OrdersOfKernel(C::kOnly);
  const ThreadPlace here;
  if (!segment.starts_block) shared.Sync();  // what was there before has been read
  if (here.thread == 0) shared.segment = segment;
  ClearQueries<C::D, kOrders>(params.orders, place.num_heads, here.thread, kThreads, shared);
  LoadQueries<C::D, C::kPairs, kOrders>(params, segment.sequence, place.kv_head, place.first_head,
                                        place.num_heads, here.warp, C::kWarps, here.at.lane, query,
                                        shared);
  if constexpr (C::kPq) WaitOwnCopies();
  FenceCopies();
  shared.Sync();
}

// The warp's first query.
template <class C>
__device__ __forceinline__ void StartFirstQuery(const AttendParams& params, const BlockPlace& place,
                                                const Segment& segment,
                                                TensorRow<C::D / 32>& query) {
  if (place.warp >= place.num_heads) return;
  StartQuery<C::D>(params, segment.sequence, place.first_head + place.warp, place.at.lane, query);
}

// What a space of a segment adds to one warp's state, with pages of its own. Strips of the first
// pages are on their way.
template <class C>
__device__ __forceinline__ void WalkOwn(const AttendParams& params, const BlockPlace& place,
                                        int space, std::byte* shared_bytes, OwnPages<C>& own,
                                        typename C::Shared& shared, WarpState<C::D, C::NT>& state) {
  WalkPages<C>(params, place, space, shared_bytes, own, shared, state);
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
    TensorRow<C::D / 32> query;
    StartFirstQuery<C>(params, place, segment, query);
    if constexpr (C::kPq) {  // nobody reads tables any more that lie there
      StartPqTables<C::D, C::kPairs>(params, place.kv_head, warp * 32 + lane, C::kThreads,
                                     shared_bytes);
    }
    int space = 31 - __clz(static_cast<int>(params.spaces));
    own.Start(params, segment, place.kv_head, space, warp);
    if (segment.starts_block) own.StartValues();
    SetUpQueries<C>(params, place, segment, query, shared);
    if (!segment.starts_block) own.StartValues();
    for (;;) {
      WarpState<C::D, C::NT> state;
      Reset<C::D, C::NT>(state);
      WalkOwn<C>(params, place, space, shared_bytes, own, shared, state);
      const ThreadPlace here;
      JoinWarps<C::D, C::NT, C::kWarps>(params, place.kv_head, place.num_heads, space, here.warp,
                                        here.at, shared, state);
      do {
        --space;
      } while (space >= 0 &&
               ((params.spaces >> space & 1) == 0 ||
                (shared.met[space] == 0 && (space != kSpacePlain || shared.met[kNumSpaces] == 0))));
      if (space < 0) break;
      FenceCopies();
      shared.Sync();  // scratch memory has been read
      own.Start(params, shared.segment, place.kv_head, space, warp);
      own.StartValues();
    }
    LetNextKernelStart();
    __syncwarp();  // a head is one warp's, here and before
    const ThreadPlace here;
    Finish<C::D, C::kWarps>(params, place.first_head, place.num_heads, here.warp, here.at.lane,
                            shared);
  }
  WriteEmptySequences<C::D, C::kWarps>(params, warp, lane);
}

// By warps that share pages.
template <class C>
__device__ __forceinline__ void ReadSharedPages(const AttendParams& params, const PageRing& ring,
                                                int warp, int lane, typename C::Shared& shared) {
  BlockPlace place;
  place.warp = warp;
  place.at = {lane, lane / 4, lane % 4};
  RingReader in = {ring, {}, lane};
  in.at.Advance(warp / 4, ring.pages);
  BlockShare share;
  for (Segment segment; share.Next(params, lane, &segment);) {
    place.Take<C>(params, segment);
    TensorRow<C::D / 32> query;
    StartFirstQuery<C>(params, place, segment, query);
    SetUpQueries<C>(params, place, segment, query, shared);
    uint32_t met = ~0u;
    for (int space = kNumSpaces - 1; space >= 0; --space) {
      if (((params.spaces & met) >> space & 1) == 0) continue;
      WarpState<C::D, C::NT> state;
      Reset<C::D, C::NT>(state);
      met = WalkRing<C>(params, place, in, shared, state);
      JoinWarps<C::D, C::NT, C::kWarps>(params, place.kv_head, place.num_heads, space, warp,
                                        place.at, shared, state);
      // Masses of pages are joined in the place of what others may still read.
      if ((params.spaces & met & ((1u << space) - 1)) != 0) shared.Sync();
    }
    LetNextKernelStart();
    __syncwarp();  // a head is one warp's, here and before
    Finish<C::D, C::kWarps>(params, place.first_head, place.num_heads, warp, lane, shared);
  }
  WriteEmptySequences<C::D, C::kWarps>(params, warp, lane);
}

// The first read of constant memory waits for device memory, microseconds where that is busy: here
// the kernel before this one may still run.
__device__ __forceinline__ bool ConstantsAreThere() {
  return kPermuteWords.magic != 0 && kSignWords.word[0] != 0;
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
  if constexpr (C::kOwnPages) {
    InitSlots(shared.barriers, warp, lane);
  } else {
    InitRing(ring, 4, threadIdx.x, C::kThreads);
  }
  __syncthreads();
  if (!ConstantsAreThere()) return;
  WaitForEarlierKernels();
  if constexpr (C::kOwnPages) {
    ReadOwnPages<C>(params, warp, lane, shared_bytes, shared);
  } else if (warp == C::kWarps) {
    SendShares<C>(params, ring, lane);
  } else {
    ReadSharedPages<C>(params, ring, warp, lane, shared);
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
  kernel.own_pages = C::kOwnPages;
  kernel.heads = Shared::kHeads;
  kernel.fixed_bytes = sizeof(Shared);
  kernel.order_bytes = Shared::kSetSize * sizeof(uint2);
  kernel.scratch_head_bytes = Shared::kScratchHeadBytes;
  if (C::kPq && !C::kPairs) kernel.buffer_bytes = C::kWarps * PqBuffer<C::D>::kBytes;
  return kernel;
}

template <int D, int NT, int kTiles, int kBlocksPerSm, int kWarps = 4, bool kPq = false>
AttendKernel MakeAttendKernel() {
  return MakeKernel<AttendConfig<D, NT, kTiles, kWarps, kPq, 0>, kBlocksPerSm>();
}
template <int D, DeviceRung kRung, int kTiles, int kBlocksPerSm, int kWarps>
AttendKernel MakeOneRungKernel() {
  constexpr bool kPq = kRung == DeviceRung::kPq;
  return MakeKernel<AttendConfig<D, 1, kTiles, kWarps, kPq, static_cast<int>(kRung)>,
                    kBlocksPerSm>();
}

template <int kWarps>
AttendKernel MakePqPairsKernel() {
  constexpr auto kPq = static_cast<int>(DeviceRung::kPq);
  return MakeKernel<AttendConfig<PqPairs::kDim, 1, 4, kWarps, true, kPq, true>, 1>();
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
