// Queries as the key kernels want them: fragments of f16 in shared memory, one set per *order*. The
// products of a warp may take channels in any order, as long as keys and queries agree; each family
// of rungs has the order in which its stored bytes come out of a word.
//
// A fragment set is uint2 [NT][steps][32 lanes]: lane 4 * g + i holds for head g (of 8 * nt + g)
// the four channels ChannelOf(order, step, i, 0 … 3).

#ifndef VARVE_CUDA_QUERY_ORDERS_CUH_
#define VARVE_CUDA_QUERY_ORDERS_CUH_

#include "cuda/query_order_ids.h"
#include "cuda/turned_lookup.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// Key words hold codes without their offset: a score needs this constant times the sum of the
// query's channels taken off. 1024 comes from the way bytes become f16 numbers, 64 likewise.
inline constexpr float kByteMagic = 1024.0f;
inline constexpr float kNibbleMagic = 64.0f;
// Level = 2 * (byte - 63.5).
inline constexpr float kTurnedZero = 63.5f;

template <int D>
struct Steps {
  static constexpr int kBlocks = D / 32;
  static constexpr int kPlain = D / 16;
  static constexpr int kRounds = (D + 127) / 128;  // of four cells, one per lane of a quad
  static constexpr int kMost = kPlain;             // bytes: D / 32, or four a round
};

// Channel of place `j` of lane `i` in step `step`; D or more: none.
template <int D>
__device__ __forceinline__ int ChannelOf(int order, int step, int i, int j) {
  const int block = step / 2;
  const int half = step % 2;
  switch (order) {
    case kOrderF16:
    case kOrderBF16High:
    case kOrderBF16Low:
      return 16 * step + 4 * j + i;
    case kOrderBlock:
    case kOrderBlockTurned:  // bytes 0, 2, 1, 3 of a word
      return 32 * block + 16 * half + 4 * i + (j == 1 ? 2 : j == 2 ? 1 : j);
    case kOrderMean:  // words 0 and 2 of four, or 1 and 3 (MeanScores)
      return 32 * block + 8 * i + 4 * (j / 2) + 2 * half + j % 2;
    default:  // pq: as they lie
      return 16 * step + 4 * i + j;
  }
}

// The same for products of bytes, which take eight channels of a lane at once, in the order in
// which lookups give them (turned_lookup.cuh): low and high nibbles take turns.
template <int D>
__device__ __forceinline__ int ByteChannelOf(int order, int step, int i, int j) {
  const int byte = j / 2, high = j % 2;
  if (order == kOrderT4) return 32 * step + 8 * i + 4 * high + byte;
  const int word = step % 4;
  const int plane = order == kOrderT3 ? PlaneOf<3>(word, high) : PlaneOf<2>(word, high);
  return 32 * (step / 4 * 4 + i) + 4 * plane + byte;
}
__device__ __forceinline__ bool IsByteOrder(int order) {
  return order >= kOrderT4 && order <= kOrderT2;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_ORDERS_CUH_
