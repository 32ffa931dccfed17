// Scores and weighted sums over float strips, for every target. See kernels.h for the layouts.

#if defined(VARVE_KERNELS_SIMD_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_FLOAT_INL_H_
#undef VARVE_KERNELS_SIMD_FLOAT_INL_H_
#else
#define VARVE_KERNELS_SIMD_FLOAT_INL_H_
#endif

#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Rows that share a pass over a strip. Their 8 accumulators hide the latency of 8 products at two a
// cycle, and with what they multiply they fit 16 registers.
inline constexpr int kFloatRows = 4;

// kRows x kTiles accumulators of 16 tokens each; every K value is widened once for all rows.
template <FloatType kType, int kRows, int kTiles>
HWY_INLINE void ScoreTiles(const KeyScoresArgs& args, int row, int tile,
                           LinePrefetcher& prefetcher) {
  // Channels in 4 lines; 16 divides dim.
  constexpr size_t kStep = 4 * 64 / (kTiles * kTileTokens * FloatBytes(kType));
  const DF df;
  const size_t dim = static_cast<size_t>(args.dim);
  const float* queries = reinterpret_cast<const float*>(args.query) + row * dim;
  for (size_t lane = 0; lane < kTileTokens; lane += hn::Lanes(df)) {
    VF sum[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) sum[r][t] = hn::Zero(df);
    }
    for (size_t step = 0; step < dim; step += kStep) {
      // Three quarters of the lines read here; the passes over scores and values do the rest.
      prefetcher.Lines<3>();
#pragma GCC unroll 8
      for (size_t d = step; d < step + kStep; ++d) {
        VF key[kTiles];
        for (int t = 0; t < kTiles; ++t) {
          key[t] = LoadValues<kType>(args.strip, ((tile + t) * dim + d) * kTileTokens + lane);
        }
        for (int r = 0; r < kRows; ++r) {
          const VF query = hn::Set(df, queries[r * dim + d]);
          for (int t = 0; t < kTiles; ++t) sum[r][t] = hn::MulAdd(query, key[t], sum[r][t]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* scores = args.scores + (row + r) * args.scores_stride;
      for (int t = 0; t < kTiles; ++t) {
        hn::StoreU(sum[r][t], df, scores + (tile + t) * kTileTokens + lane);
      }
    }
  }
}

template <FloatType kType>
void KeyScoresFloat(const KeyScoresArgs& args) {
  const int tiles = CeilDiv(args.num_tokens, kTileTokens);
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles<kFloatRows>(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    int tile = 0;
    for (; tile + 2 <= tiles; tile += 2) ScoreTiles<kType, kRows, 2>(args, row, tile, local);
    if (tile < tiles) ScoreTiles<kType, kRows, 1>(args, row, tile, local);
    prefetcher = local;
  });
  prefetcher.Save();
}

// kVectors neighbouring vectors of channels in one chunk, accumulated over the tokens.
template <FloatType kType, int kRows, int kVectors>
HWY_INLINE void AddChannels(const AddValuesArgs& args, int row, size_t chunk, size_t chunk_index,
                            size_t lane, LinePrefetcher& prefetcher) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const size_t dim = static_cast<size_t>(args.dim);
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  float* out = args.accumulators + row * dim + chunk_index * chunk + lane;
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::LoadU(df, out + r * dim + i * n);
  }
  const float* weights = args.weights + row * args.weights_stride;
  const auto add = [&](size_t token) HWY_ATTR {
    VF value[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      value[i] =
          LoadValues<kType>(args.strip, (chunk_index * tokens + token) * chunk + lane + i * n);
    }
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(df, weights[r * args.weights_stride + token]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, value[i], sum[r][i]);
    }
  };
  constexpr size_t kStep = 4;  // tokens
  constexpr size_t kStepBytes = kStep * kVectors * hn::MaxLanes(df) * FloatBytes(kType);
  const size_t end = static_cast<size_t>(args.first + args.count);
  size_t token = static_cast<size_t>(args.first);
  for (; token + kStep <= end; token += kStep) {
    prefetcher.Lines<static_cast<int>(CeilDiv(kStepBytes, 64))>();
#pragma GCC unroll 4
    for (size_t t = token; t < token + kStep; ++t) add(t);
  }
  for (; token < end; ++token) add(token);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) hn::StoreU(sum[r][i], df, out + r * dim + i * n);
  }
}

template <FloatType kType>
void AddValuesFloat(const AddValuesArgs& args) {
  const size_t n = hn::Lanes(DF());
  const size_t chunk = static_cast<size_t>(ValueChunk(args.dim));
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles<kFloatRows>(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    for (size_t c = 0; c < static_cast<size_t>(args.dim) / chunk; ++c) {
      size_t lane = 0;
      for (; lane + 2 * n <= chunk; lane += 2 * n) {
        AddChannels<kType, kRows, 2>(args, row, chunk, c, lane, local);
      }
      for (; lane < chunk; lane += n)
        AddChannels<kType, kRows, 1>(args, row, chunk, c, lane, local);
    }
    prefetcher = local;
  });
  prefetcher.Save();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
