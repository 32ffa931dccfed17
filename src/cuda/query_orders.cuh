// Queries as the key kernels want them: fragments of f16 in shared memory, one set per *order*. The
// products of a warp may take channels in any order, as long as keys and queries agree; each family
// of rungs has the order in which its stored bytes come out of a word.
//
// A fragment set is uint2 [NT][steps][32 lanes]: lane 4 * g + i holds for head g (of 8 * nt + g)
// the four channels whose PlaceOf is that step and i; of products of bytes eight channels.

#ifndef VARVE_CUDA_QUERY_ORDERS_CUH_
#define VARVE_CUDA_QUERY_ORDERS_CUH_

#include "cuda/query_order_ids.h"
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

// Where a channel of a query goes: place `j` of lane `i` in step `step`.
struct ChannelPlace {
  int step;
  int i;
  int j;
};

// Of products of f16, which take four channels of a lane at once.
__device__ __forceinline__ ChannelPlace PlaceOf(int order, int channel) {
  const int step = channel / 16;
  switch (order) {
    case kOrderF16:
    case kOrderBF16High:
    case kOrderBF16Low:
      return {step, channel % 4, channel % 16 / 4};
    case kOrderBlock:
    case kOrderBlockTurned: {  // bytes 0, 2, 1, 3 of a word
      const int byte = channel % 4;
      return {step, channel % 16 / 4, byte == 1 ? 2 : byte == 2 ? 1 : byte};
    }
    case kOrderMean:  // words 0 and 2 of four, or 1 and 3 (MeanScores)
      return {channel / 32 * 2 + channel % 4 / 2, channel % 32 / 8,
              channel % 8 / 4 * 2 + channel % 2};
    default:  // pq: as they lie
      return {step, channel % 16 / 4, channel % 4};
  }
}

// The same for products of bytes, which take eight channels of a lane at once, in the order in
// which lookups give them (turned_lookup.cuh): low and high nibbles take turns.
__device__ __forceinline__ ChannelPlace BytePlaceOf(int order, int channel) {
  const int block = channel / 32, byte = channel % 4;
  if (order == kOrderT4) return {block, channel % 32 / 8, 2 * byte + channel % 8 / 4};
  const int plane = channel % 32 / 4;
  const int word = order == kOrderT3 ? plane / 2 : plane / 4 * 2 + plane % 2;
  const int high = order == kOrderT3 ? plane % 2 : plane / 2 % 2;
  return {block / 4 * 4 + word, block % 4, 2 * byte + high};
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_ORDERS_CUH_
