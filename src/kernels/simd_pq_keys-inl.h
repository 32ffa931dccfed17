// Scores on pq strips, for every target. See pq_kernels.h for the layouts and scalar_pq.cc for the
// arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_PQ_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_PQ_KEYS_INL_H_
#undef VARVE_KERNELS_SIMD_PQ_KEYS_INL_H_
#else
#define VARVE_KERNELS_SIMD_PQ_KEYS_INL_H_
#endif

#include "kernels/simd_pq_lookup-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

HWY_INLINE const std::byte* PqLevels(const PqScoresArgs& args, int row) {
  return args.query + row * args.query_stride + kPqQueryHeaderBytes;
}

HWY_INLINE const float* QueryTable(const PqScoresArgs& args, int row) {
  return reinterpret_cast<const float*>(args.query + row * args.query_stride +
                                        PqQueryTableOffset(args.shape.dim));
}

// sums[r][k] += the query's two levels times the bytes of two channels, which lie side by side as
// 16-bit halves: lane 4b + i of sum k is token 16b + 4k + i.
template <int kRows, class D8, class V32>
HWY_INLINE void AddTwoChannels(const PqScoresArgs& args, int row, int channel, hn::Vec<D8> first,
                               hn::Vec<D8> second, V32 (&sums)[kRows][4]) {
  const D8 d8;
  const LanesOf<D8> d32;
  const auto zero = hn::Zero(d8);
  const auto low = hn::InterleaveLower(d8, first, second);
  const auto high = hn::InterleaveUpper(d8, first, second);
  const V32 part0 = hn::BitCast(d32, hn::InterleaveLower(d8, low, zero));
  const V32 part1 = hn::BitCast(d32, hn::InterleaveUpper(d8, low, zero));
  const V32 part2 = hn::BitCast(d32, hn::InterleaveLower(d8, high, zero));
  const V32 part3 = hn::BitCast(d32, hn::InterleaveUpper(d8, high, zero));
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    int32_t pair;
    __builtin_memcpy(&pair, PqLevels(args, row + r) + 2 * channel, 4);
    const V32 levels = hn::Set(d32, pair);
    sums[r][0] = AddPairs(d32, sums[r][0], part0, levels);
    sums[r][1] = AddPairs(d32, sums[r][1], part1, levels);
    sums[r][2] = AddPairs(d32, sums[r][2], part2, levels);
    sums[r][3] = AddPairs(d32, sums[r][3], part3, levels);
  }
}

// Scores of kTokens tokens from `token` on, for kRows rows.
template <int kBits, int kTokens, int kRows>
HWY_INLINE void ScoreBytesTile(const PqScoresArgs& args, int row, int token, const float* gains,
                               LinePrefetcher& prefetcher) {
  using D8 = TokenBytes<kTokens>;
  const D8 d8;
  const LanesOf<D8> d32;
  using V32 = hn::Vec<decltype(d32)>;
  const PqShape& shape = args.shape;
  const int sub_dim = shape.sub_dim();
  constexpr size_t kCodes = size_t{1} << kBits;
  const auto* strip = reinterpret_cast<const uint8_t*>(args.strip);
  const auto look_up = [&](int channel, hn::Vec<D8> codes) HWY_ATTR {
    return ByteTable<kBits, false, D8>(args.centroids.bytes + channel * kCodes)(codes);
  };

  V32 sums[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    int32_t offset;
    __builtin_memcpy(&offset, args.query + (row + r) * args.query_stride + 4, 4);
    for (V32& sum : sums[r]) sum = hn::Set(d32, offset);
  }
  prefetcher.BeginRange();
  if (sub_dim % 2 == 0) {
    auto codes = hn::Zero(d8);
    int left = 0;  // channels of the sub-space that are still to come
    int m = -1;
    for (int channel = 0; channel < shape.dim; channel += 2, left -= 2) {
      if (left == 0) {
        codes = LoadPqCodes<kBits>(d8, shape, strip, ++m, token);
        prefetcher.Line();
        left = sub_dim;
      }
      AddTwoChannels<kRows, D8>(args, row, channel, look_up(channel, codes),
                                look_up(channel + 1, codes), sums);
    }
  } else {
    // Pairs of channels cross from sub-space to sub-space.
    for (int channel = 0; channel < shape.dim; channel += 2) {
      const auto first = LoadPqCodes<kBits>(d8, shape, strip, channel / sub_dim, token);
      const auto second = LoadPqCodes<kBits>(d8, shape, strip, (channel + 1) / sub_dim, token);
      prefetcher.Line();
      AddTwoChannels<kRows, D8>(args, row, channel, look_up(channel, first),
                                look_up(channel + 1, second), sums);
    }
  }

  const hn::CappedTag<float, 4> df4;
  const hn::CappedTag<int32_t, 4> di4;
  alignas(64) int32_t lanes[4][16];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < 4; ++k) hn::Store(sums[r][k], d32, lanes[k]);  // 16 lanes at most
    float step;
    __builtin_memcpy(&step, args.query + (row + r) * args.query_stride, 4);
    const auto steps = hn::Set(df4, step);
    float* scores = args.scores + (row + r) * args.scores_stride + token;
    for (int b = 0; b < kTokens / 16; ++b) {
      for (int k = 0; k < 4; ++k) {
        const auto sum = hn::ConvertTo(df4, hn::Load(di4, lanes[k] + 4 * b));
        const auto factor = hn::Mul(steps, hn::Load(df4, gains + token + 16 * b + 4 * k));
        hn::StoreU(hn::Mul(sum, factor), df4, scores + 16 * b + 4 * k);
      }
    }
  }
}

// Gains of a strip as f32, zeros up to the next multiple of 64.
HWY_INLINE void WidenGains(const std::byte* strip, int page_tokens, float* gains) {
  const DF df;
  const auto* from = reinterpret_cast<const hwy::float16_t*>(strip);
  for (int t = 0; t < page_tokens; t += static_cast<int>(hn::Lanes(df)))
    hn::Store(WidenF16(from + t), df, gains + t);
}

template <int kBits, int kTokens>
void ScoresBytesTokens(const PqScoresArgs& args) {
  alignas(64) float gains[kMaxPageTokens];
  WidenGains(args.strip, args.shape.page_tokens, gains);
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    for (int token = 0; token < args.num_tokens; token += kTokens)
      ScoreBytesTile<kBits, kTokens, kRows>(args, row, token, gains, local);
    prefetcher = local;
  });
  prefetcher.Save();
}

// Bytes of the widest vector.
inline constexpr int kVectorBytes =
    static_cast<int>(4 * HWY_MAX_BYTES / 4 < 64 ? HWY_MAX_BYTES : 64);

template <int kBits>
void ScoresBytes(const PqScoresArgs& args) {
  if (kVectorBytes >= 64 && args.shape.page_tokens >= 64) {
    return ScoresBytesTokens<kBits, kVectorBytes>(args);
  }
  if (kVectorBytes >= 32 && args.shape.page_tokens >= 32) {
    return ScoresBytesTokens < kBits, kVectorBytes < 32 ? kVectorBytes : 32 > (args);
  }
  ScoresBytesTokens<kBits, 16>(args);
}

// Codes of any width, as indices of lanes.
void ScoresTables(const PqScoresArgs& args) {
  const DF df;
  const DI di;
  const hn::Rebind<uint16_t, DI> du16;
  const PqShape& shape = args.shape;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const size_t num_codes = static_cast<size_t>(shape.num_codes());
  alignas(64) uint16_t codes[kMaxPageTokens];
  const int tokens = (args.num_tokens + lanes - 1) / lanes * lanes;
  LinePrefetcher prefetcher(args.ahead);
  for (int row = 0; row < args.num_rows; ++row) {
    for (int t = 0; t < tokens; t += lanes)
      hn::StoreU(hn::Zero(df), df, args.scores + row * args.scores_stride + t);
  }
  for (int m = 0; m < shape.subspaces; ++m) {
    ReadPqCodes(shape, args.strip, m, codes);
    prefetcher.Lines<1>();
    for (int row = 0; row < args.num_rows; ++row) {
      const float* table = QueryTable(args, row) + static_cast<size_t>(m) * num_codes;
      float* scores = args.scores + row * args.scores_stride;
      for (int t = 0; t < tokens; t += lanes) {
        const VI index = hn::PromoteTo(di, hn::Load(du16, codes + t));
        const VF found = hn::GatherIndex(df, table, index);
        hn::StoreU(hn::Add(hn::LoadU(df, scores + t), found), df, scores + t);
      }
    }
  }
  alignas(64) float gains[kMaxPageTokens];
  WidenGains(args.strip, shape.page_tokens, gains);
  for (int row = 0; row < args.num_rows; ++row) {
    float* scores = args.scores + row * args.scores_stride;
    for (int t = 0; t < tokens; t += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(df, scores + t), hn::Load(df, gains + t)), df, scores + t);
  }
  prefetcher.Save();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
