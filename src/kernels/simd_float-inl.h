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

// kRows x kTiles accumulators of 16 tokens each; every K value is widened once for all rows.
template <FloatType kType, int kRows, int kTiles>
HWY_INLINE void ScoreTiles(const KeyScoresArgs& args, int row, int tile,
                           LinePrefetcher& prefetcher) {
  constexpr size_t kStep =
      4 * 64 / (kTiles * kTileTokens * FloatBytes(kType));  // channels in 4 lines
  const DF df;
  const size_t dim = static_cast<size_t>(args.dim);
  const float* queries = reinterpret_cast<const float*>(args.query) + row * dim;
  for (size_t lane = 0; lane < kTileTokens; lane += hn::Lanes(df)) {
    VF sum[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) sum[r][t] = hn::Zero(df);
    }
    for (size_t d = 0; d < dim; ++d) {
      // Three quarters of the lines read here; the passes over scores and values do the rest.
      if (d % kStep == 0) prefetcher.Lines<3>();
      VF key[kTiles];
      for (int t = 0; t < kTiles; ++t) {
        key[t] = LoadValues<kType>(args.strip, ((tile + t) * dim + d) * kTileTokens + lane);
      }
      for (int r = 0; r < kRows; ++r) {
        const VF query = hn::Set(df, queries[r * dim + d]);
        for (int t = 0; t < kTiles; ++t) sum[r][t] = hn::MulAdd(query, key[t], sum[r][t]);
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
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
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
  for (size_t token = args.first; token < static_cast<size_t>(args.first + args.count); ++token) {
    if constexpr (kVectors * kTileTokens * FloatBytes(kType) >= 64) {
      prefetcher.Lines<kVectors * kTileTokens * FloatBytes(kType) / 64>();
    } else if (token % 2 == 0) {
      prefetcher.Lines<1>();
    }
    VF value[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      value[i] =
          LoadValues<kType>(args.strip, (chunk_index * tokens + token) * chunk + lane + i * n);
    }
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(df, weights[r * args.weights_stride + token]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, value[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) hn::StoreU(sum[r][i], df, out + r * dim + i * n);
  }
}

template <FloatType kType>
void AddValuesFloat(const AddValuesArgs& args) {
  const size_t n = hn::Lanes(DF());
  const size_t chunk = static_cast<size_t>(ValueChunk(args.dim));
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
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
