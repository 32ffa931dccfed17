// Scores on q8_0 and q4_0 strips by integer dot products, for every target. See kernels.h for the
// layouts and scalar_kernels.cc for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_BLOCK_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_BLOCK_KEYS_INL_H_
#undef VARVE_KERNELS_SIMD_BLOCK_KEYS_INL_H_
#else
#define VARVE_KERNELS_SIMD_BLOCK_KEYS_INL_H_
#endif

#include "kernels/kernel_tables.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// The parts of kRows consecutive block queries.
struct BlockQueryView {
  const std::byte* base;
  size_t stride;
  int blocks;
  int dim;

  // Of 256 * hi + lo (q8_0), and of hi alone (q4_0).
  HWY_INLINE float Scale8(int r, int b) const {
    return reinterpret_cast<const float*>(base + r * stride)[b];
  }
  HWY_INLINE float Scale4(int r, int b) const {
    return reinterpret_cast<const float*>(base + r * stride)[blocks + b];
  }
  // Corrections for the offset of q8_0 codes in the high and in the low plane, and of q4_0 codes.
  HWY_INLINE const std::byte* HighOffset8(int r, int b) const {
    return base + r * stride + 4 * (2 * blocks + b);
  }
  HWY_INLINE const std::byte* LowOffset8(int r, int b) const {
    return base + r * stride + 4 * (3 * blocks + b);
  }
  HWY_INLINE const std::byte* HighOffset4(int r, int b) const {
    return base + r * stride + 4 * (4 * blocks + b);
  }
  // Four codes as one dword.
  HWY_INLINE const std::byte* High(int r, int dword) const {
    return base + r * stride + 20 * blocks + 4 * dword;
  }
  HWY_INLINE const std::byte* Low(int r, int dword) const { return High(r, dword) + dim; }
  // The same four values as 16-bit pairs: first and third, then second and fourth.
  HWY_INLINE const std::byte* EvenPair(int r, int dword) const {
    return base + r * stride + 20 * blocks + 2 * dim + 8 * dword;
  }
  HWY_INLINE const std::byte* OddPair(int r, int dword) const { return EvenPair(r, dword) + 4; }
};

// Adds the products of one dword of codes per token, of the tokens of tile t.
template <BlockType kType, int kRows, int kTiles>
HWY_INLINE void AddKeyCodes(const BlockQueryView& query, int dword, VI code, int t,
                            VI (&high)[kRows][kTiles], VI (&low)[kRows][kTiles]) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  // Both planes of the query at once, in `low`: |sum| <= 32 * 32512 * 255 < 2^29. `high` keeps only
  // its offset, which still counts 256 times.
  constexpr bool kPairs = kQ8 && !kByteDot;
  if constexpr (kPairs) {
    const VI even = EvenBytesUnsigned(code);
    const VI odd = OddBytesUnsigned(code);
    for (int r = 0; r < kRows; ++r) {
      low[r][t] = DotPairs(low[r][t], even, BroadcastI32(query.EvenPair(r, dword)));
      low[r][t] = DotPairs(low[r][t], odd, BroadcastI32(query.OddPair(r, dword)));
    }
  } else if constexpr (kQ8) {
    for (int r = 0; r < kRows; ++r) {
      high[r][t] = DotBroadcast(high[r][t], code, query.High(r, dword));
      low[r][t] = DotBroadcast(low[r][t], code, query.Low(r, dword));
    }
  } else {
    const VI first = LowNibbles(code);
    const VI second = HighNibbles(code);
    for (int r = 0; r < kRows; ++r) {
      high[r][t] = DotBroadcast(high[r][t], first, query.High(r, dword));
      high[r][t] = DotBroadcast(high[r][t], second, query.High(r, dword + 4));
    }
  }
}

// score += the sums of block b times its scales.
template <BlockType kType, int kRows, int kTiles>
HWY_INLINE void AddBlockScores(const KeyScoresArgs& args, const BlockQueryView& query, int tile,
                               size_t b, size_t lane, const VI (&high)[kRows][kTiles],
                               const VI (&low)[kRows][kTiles], VF (&score)[kRows][kTiles]) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  const size_t blocks = static_cast<size_t>(query.blocks);
  for (int t = 0; t < kTiles; ++t) {
    const VF key_scale =
        LoadValues<FloatType::kF16>(args.strip, ((tile + t) * blocks + b) * kTileTokens + lane);
    for (int r = 0; r < kRows; ++r) {
      const int block = static_cast<int>(b);
      const VI total = kQ8 ? hn::Add(hn::ShiftLeft<8>(high[r][t]), low[r][t]) : high[r][t];
      const VF scale =
          hn::Mul(key_scale, hn::Set(df, kQ8 ? query.Scale8(r, block) : query.Scale4(r, block)));
      score[r][t] = hn::MulAdd(hn::ConvertTo(df, total), scale, score[r][t]);
    }
  }
}

template <BlockType kType, int kRows, int kTiles>
HWY_INLINE void ScoreBlockTiles(const KeyScoresArgs& args, const BlockQueryView& query, int row,
                                int tile, LinePrefetcher& prefetcher) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  constexpr int kDwords = static_cast<int>(BlockCodeBytes(kType) / 4);
  const DF df;
  const DI di;
  const size_t blocks = static_cast<size_t>(query.blocks);
  const std::byte* codes = args.strip + static_cast<size_t>(args.page_tokens) * blocks * 2;
  for (size_t lane = 0; lane < kTileTokens; lane += hn::Lanes(df)) {
    VF score[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) score[r][t] = hn::Zero(df);
    }
    for (size_t b = 0; b < blocks; ++b) {
      VI high[kRows][kTiles];
      VI low[kRows][kTiles];  // q8_0 only
      for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTiles; ++t) {
          const int block = static_cast<int>(b);
          high[r][t] =
              BroadcastI32(kQ8 ? query.HighOffset8(r, block) : query.HighOffset4(r, block));
          low[r][t] = kQ8 ? BroadcastI32(query.LowOffset8(r, block)) : hn::Zero(di);
        }
      }
      // Three quarters of the lines read here; the passes over scores and values do the rest.
      prefetcher.Lines<kDwords * kTiles * 3 / 4>();
      HWY_UNROLL(8)
      for (int j = 0; j < kDwords; ++j) {
        const int dword = static_cast<int>(b) * 8 + j;
        for (int t = 0; t < kTiles; ++t) {
          const size_t at = (((tile + t) * blocks + b) * kDwords + j) * kTileTokens + lane;
          const VI code = LoadI32(codes + 4 * at);
          AddKeyCodes<kType>(query, dword, code, t, high, low);
        }
      }
      AddBlockScores<kType>(args, query, tile, b, lane, high, low, score);
    }
    for (int r = 0; r < kRows; ++r) {
      float* scores = args.scores + (row + r) * args.scores_stride;
      for (int t = 0; t < kTiles; ++t) {
        hn::StoreU(score[r][t], df, scores + (tile + t) * kTileTokens + lane);
      }
    }
  }
}

template <BlockType kType>
void KeyScoresBlock(const KeyScoresArgs& args) {
  // q8_0 has two accumulators a row already, which hides the latency of the dot product.
  constexpr int kTiles = kType == BlockType::kQ8 ? 1 : 2;
  const int tiles = CeilDiv(args.num_tokens, kTileTokens);
  const size_t stride = BlockQueryBytes(args.dim);
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    const BlockQueryView query = {args.query + row * stride, stride, args.dim / kBlockValues,
                                  args.dim};
    LinePrefetcher local = prefetcher;  // in registers
    int tile = 0;
    for (; tile + kTiles <= tiles; tile += kTiles) {
      ScoreBlockTiles<kType, kRows, kTiles>(args, query, row, tile, local);
    }
    if (tile < tiles) ScoreBlockTiles<kType, kRows, 1>(args, query, row, tile, local);
    prefetcher = local;
  });
  prefetcher.Save();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
