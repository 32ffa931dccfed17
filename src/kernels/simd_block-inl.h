// Integer attention on q8_0 and q4_0 strips, for every target. See kernels.h for the layouts and
// scalar_kernels.cc for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_BLOCK_INL_H_
#undef VARVE_KERNELS_SIMD_BLOCK_INL_H_
#else
#define VARVE_KERNELS_SIMD_BLOCK_INL_H_
#endif

#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

HWY_INLINE VI LowNibbles(VI v) { return hn::And(v, hn::Set(DI(), 0x0F0F0F0F)); }
HWY_INLINE VI HighNibbles(VI v) { return LowNibbles(hn::ShiftRight<4>(v)); }

// The parts of kRows consecutive block queries.
struct BlockQueryView {
  const std::byte* base;
  size_t stride;
  int blocks;
  int dim;

  HWY_INLINE float Scale(int r, int b) const {
    return reinterpret_cast<const float*>(base + r * stride)[b];
  }
  HWY_INLINE int32_t HighSum(int r, int b) const {
    return reinterpret_cast<const int32_t*>(base + r * stride)[blocks + b];
  }
  HWY_INLINE int32_t LowSum(int r, int b) const {
    return reinterpret_cast<const int32_t*>(base + r * stride)[2 * blocks + b];
  }
  // Four codes as one dword.
  HWY_INLINE const std::byte* High(int r, int dword) const {
    return base + r * stride + 12 * blocks + 4 * dword;
  }
  HWY_INLINE const std::byte* Low(int r, int dword) const { return High(r, dword) + dim; }
};

template <BlockType kType, int kRows, int kTiles>
HWY_INLINE void ScoreBlockTiles(const KeyScoresArgs& args, const BlockQueryView& query, int row, int tile,
                                LinePrefetcher& prefetcher) {
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
          high[r][t] = hn::Set(di, (kQ8 ? -128 : -8) * query.HighSum(r, static_cast<int>(b)));
          low[r][t] = kQ8 ? hn::Set(di, -128 * query.LowSum(r, static_cast<int>(b))) : hn::Zero(di);
        }
      }
      for (int j = 0; j < kDwords; ++j) {
        const int dword = static_cast<int>(b) * 8 + j;
        for (int t = 0; t < kTiles; ++t) {
          prefetcher.Line();
          const size_t at = (((tile + t) * blocks + b) * kDwords + j) * kTileTokens + lane;
          const VI code = LoadI32(codes + 4 * at);
          if constexpr (kQ8) {
            for (int r = 0; r < kRows; ++r) {
              high[r][t] = DotBytes(high[r][t], code, BroadcastI32(query.High(r, dword)));
              low[r][t] = DotBytes(low[r][t], code, BroadcastI32(query.Low(r, dword)));
            }
          } else {
            const VI first = LowNibbles(code);
            const VI second = HighNibbles(code);
            for (int r = 0; r < kRows; ++r) {
              high[r][t] = DotBytes(high[r][t], first, BroadcastI32(query.High(r, dword)));
              high[r][t] = DotBytes(high[r][t], second, BroadcastI32(query.High(r, dword + 4)));
            }
          }
        }
      }
      for (int t = 0; t < kTiles; ++t) {
        const VF key_scale =
            LoadValues<FloatType::kF16>(args.strip, ((tile + t) * blocks + b) * kTileTokens + lane);
        for (int r = 0; r < kRows; ++r) {
          const VI total = kQ8 ? hn::Add(hn::ShiftLeft<8>(high[r][t]), low[r][t])
                               : hn::ShiftLeft<8>(high[r][t]);
          const VF scale = hn::Mul(key_scale, hn::Set(df, query.Scale(r, static_cast<int>(b))));
          score[r][t] = hn::MulAdd(hn::ConvertTo(df, total), scale, score[r][t]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* scores = args.scores + static_cast<size_t>(row + r) * args.page_tokens;
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
  const int tiles = (args.num_tokens + kTileTokens - 1) / kTileTokens;
  const size_t stride = BlockQueryBytes(args.dim);
  LinePrefetcher prefetcher(args.next);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    const BlockQueryView query = {args.query + row * stride, stride, args.dim / kBlockValues, args.dim};
    int tile = 0;
    for (; tile + kTiles <= tiles; tile += kTiles) {
      ScoreBlockTiles<kType, kRows, kTiles>(args, query, row, tile, prefetcher);
    }
    if (tile < tiles) ScoreBlockTiles<kType, kRows, 1>(args, query, row, tile, prefetcher);
  });
  prefetcher.Rest();
}

// Weights of one block of channels, times the tokens' scales, as two planes of bytes.
template <int kRows>
struct WeightPlanes {
  alignas(64) uint8_t high[kRows][kMaxPageTokens];
  alignas(64) uint8_t low[kRows][kMaxPageTokens];
  float step[kRows];      // value of one level
  int32_t offset[kRows];  // q4_0: -8 * sum of the weights, since codes are unsigned
};

template <BlockType kType, int kRows>
HWY_INLINE void QuantizeWeights(const AddValuesArgs& args, int row, size_t b, WeightPlanes<kRows>& planes) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  constexpr float kLevels = kQ8 ? 65535.0f : 32512.0f;
  const DF df;
  const DI di;
  const size_t n = hn::Lanes(df);
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  const float* weights = args.weights + row * tokens;

  VF max = hn::Zero(df);
  for (size_t t = 0; t < tokens; t += n) {
    max = hn::Max(max, hn::Abs(LoadValues<FloatType::kF16>(args.strip, b * tokens + t)));
  }
  const float scale_max = hn::GetLane(hn::MaxOfLanes(df, max));
  float to_levels[kRows];
  VI sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float range = args.weight_max[row + r] * scale_max;
    to_levels[r] = kLevels / range;
    const bool usable = range > 0.0f && to_levels[r] < hwy::HighestValue<float>();
    planes.step[r] = usable ? range / kLevels : 0.0f;
    if (!usable) to_levels[r] = 0.0f;
    sum[r] = hn::Zero(di);
  }
  for (size_t t = 0; t < tokens; t += n) {
    const VF scale = LoadValues<FloatType::kF16>(args.strip, b * tokens + t);
    for (int r = 0; r < kRows; ++r) {
      const VF scaled = hn::Mul(hn::Mul(hn::LoadU(df, weights + r * tokens + t), scale),
                                hn::Set(df, to_levels[r]));
      const VI level = NearestLevel(scaled);
      if constexpr (kQ8) {
        StoreLowBytes(level, &planes.low[r][t]);
        StoreLowBytes(hn::ShiftRight<8>(level), &planes.high[r][t]);
      } else {
        sum[r] = hn::Add(sum[r], level);
        // level = 256 * high + low with low in [-128, 127]: rounding the high byte carries over.
        StoreLowBytes(level, &planes.low[r][t]);
        StoreLowBytes(hn::ShiftRight<8>(hn::Add(level, hn::Set(di, 128))), &planes.high[r][t]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    // Shifted first: what a NaN put into the top bits drops out.
    planes.offset[r] = kQ8 ? 0 : -hn::GetLane(hn::SumOfLanes(di, hn::ShiftLeft<3>(sum[r])));
  }
}

template <BlockType kType, int kRows>
HWY_INLINE void AddBlock(const AddValuesArgs& args, int row, size_t b, const WeightPlanes<kRows>& planes,
                         LinePrefetcher& prefetcher) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  const DI di;
  const size_t dim = static_cast<size_t>(args.dim);
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  const std::byte* codes = args.strip + tokens * dim / 16 + b * BlockCodeBytes(kType) * tokens;
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(df)) {
    // Channels lane… and 16 + lane… of the block.
    VI high[kRows][2];
    VI low[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) {
        high[r][half] = hn::Zero(di);
        low[r][half] = hn::Set(di, planes.offset[r]);
      }
    }
    for (size_t quad = 0; quad < tokens / 4; ++quad) {
      prefetcher.Line();
      if constexpr (kQ8) {
        prefetcher.Line();
        const VI code0 = LoadI32(codes + (quad * 32 + lane) * 4);
        const VI code1 = LoadI32(codes + (quad * 32 + 16 + lane) * 4);
        for (int r = 0; r < kRows; ++r) {
          const VI weight_high = BroadcastI32(&planes.high[r][quad * 4]);
          const VI weight_low = BroadcastI32(&planes.low[r][quad * 4]);
          high[r][0] = DotBytes(high[r][0], weight_high, code0);
          high[r][1] = DotBytes(high[r][1], weight_high, code1);
          low[r][0] = DotBytes(low[r][0], weight_low, code0);
          low[r][1] = DotBytes(low[r][1], weight_low, code1);
        }
      } else {
        const VI code = LoadI32(codes + (quad * 16 + lane) * 4);
        const VI code0 = LowNibbles(code);
        const VI code1 = HighNibbles(code);
        for (int r = 0; r < kRows; ++r) {
          const VI weight_high = BroadcastI32(&planes.high[r][quad * 4]);
          const VI weight_low = BroadcastI32(&planes.low[r][quad * 4]);
          high[r][0] = DotBytes(high[r][0], code0, weight_high);
          high[r][1] = DotBytes(high[r][1], code1, weight_high);
          low[r][0] = DotBytes(low[r][0], code0, weight_low);
          low[r][1] = DotBytes(low[r][1], code1, weight_low);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* out = args.accumulators + (row + r) * dim + b * kBlockValues + lane;
      const VF step = hn::Set(df, planes.step[r]);
      for (int half = 0; half < 2; ++half) {
        const VI total = hn::Add(hn::ShiftLeft<8>(high[r][half]), low[r][half]);
        const VF before = hn::LoadU(df, out + 16 * half);
        hn::StoreU(hn::MulAdd(hn::ConvertTo(df, total), step, before), df, out + 16 * half);
      }
    }
  }
}

template <BlockType kType>
void AddValuesBlock(const AddValuesArgs& args) {
  LinePrefetcher prefetcher(args.next);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    WeightPlanes<kRows> planes;
    for (size_t b = 0; b < static_cast<size_t>(args.dim) / kBlockValues; ++b) {
      QuantizeWeights<kType, kRows>(args, row, b, planes);
      AddBlock<kType, kRows>(args, row, b, planes, prefetcher);
    }
  });
  prefetcher.Rest();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
