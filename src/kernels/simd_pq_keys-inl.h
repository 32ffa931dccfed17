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

// The same with four channels and levels that are bytes.
template <int kRows, class D8, class V32>
HWY_INLINE void AddFourChannels(const PqScoresArgs& args, int row, int channel,
                                const hn::Vec<D8> (&values)[4], V32 (&sums)[kRows][4]) {
  const D8 d8;
  const hn::Repartition<uint16_t, D8> d16;
  const LanesOf<D8> d32;
  const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, values[0], values[1]));
  const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d8, values[2], values[3]));
  const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, values[0], values[1]));
  const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, values[2], values[3]));
  const V32 part0 = hn::BitCast(d32, hn::InterleaveLower(d16, low01, low23));
  const V32 part1 = hn::BitCast(d32, hn::InterleaveUpper(d16, low01, low23));
  const V32 part2 = hn::BitCast(d32, hn::InterleaveLower(d16, high01, high23));
  const V32 part3 = hn::BitCast(d32, hn::InterleaveUpper(d16, high01, high23));
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    int32_t four;
    __builtin_memcpy(&four, PqLevels(args, row + r) + channel, 4);
    const V32 levels = hn::Set(d32, four);
    sums[r][0] = AddQuads(d32, sums[r][0], part0, levels);
    sums[r][1] = AddQuads(d32, sums[r][1], part1, levels);
    sums[r][2] = AddQuads(d32, sums[r][2], part2, levels);
    sums[r][3] = AddQuads(d32, sums[r][3], part3, levels);
  }
}

// scores[t] = sum of token t * (step * gain), the sums being in the order of AddTwoChannels.
template <int kTokens, class V32>
HWY_INLINE void StoreTokenSums(const V32 (&sums)[4], float step, const float* gains,
                               float* scores) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (kTokens == 64) {
    // Blocks of four lanes, transposed.
    const __m512i low01 = _mm512_shuffle_i32x4(sums[0].raw, sums[1].raw, 0x44);
    const __m512i low23 = _mm512_shuffle_i32x4(sums[2].raw, sums[3].raw, 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(sums[0].raw, sums[1].raw, 0xEE);
    const __m512i high23 = _mm512_shuffle_i32x4(sums[2].raw, sums[3].raw, 0xEE);
    const __m512i tokens[4] = {
        _mm512_shuffle_i32x4(low01, low23, 0x88), _mm512_shuffle_i32x4(low01, low23, 0xDD),
        _mm512_shuffle_i32x4(high01, high23, 0x88), _mm512_shuffle_i32x4(high01, high23, 0xDD)};
    const DF df;
    const VF steps = hn::Set(df, step);
    HWY_UNROLL(4)
    for (int b = 0; b < 4; ++b) {
      const VF factor = hn::Mul(steps, hn::Load(df, gains + 16 * b));
      hn::StoreU(hn::Mul(hn::ConvertTo(df, VI{tokens[b]}), factor), df, scores + 16 * b);
    }
    return;
  }
#endif
  const LanesOf<TokenBytes<kTokens>> d32;
  const hn::CappedTag<float, 4> df4;
  const hn::CappedTag<int32_t, 4> di4;
  alignas(64) int32_t lanes[4][16];
  for (int k = 0; k < 4; ++k) hn::Store(sums[k], d32, lanes[k]);
  const auto steps = hn::Set(df4, step);
  for (int b = 0; b < kTokens / 16; ++b) {
    for (int k = 0; k < 4; ++k) {
      const auto sum = hn::ConvertTo(df4, hn::Load(di4, lanes[k] + 4 * b));
      const auto factor = hn::Mul(steps, hn::Load(df4, gains + 16 * b + 4 * k));
      hn::StoreU(hn::Mul(sum, factor), df4, scores + 16 * b + 4 * k);
    }
  }
}

// Adds all channels under codes of 4 bits, four at a time.
template <int kRows, class D8, class V32>
HWY_INLINE void AddChannelsByFour(const PqScoresArgs& args, int row, int token,
                                  LinePrefetcher& prefetcher, V32 (&sums)[kRows][4]) {
  const D8 d8;
  const PqShape& shape = args.shape;
  const int sub_dim = shape.sub_dim();
  const auto* strip = reinterpret_cast<const uint8_t*>(args.strip);
  constexpr size_t kCodes = size_t{1} << 4;
  const auto look_up = [&](int channel, hn::Vec<D8> codes) HWY_ATTR {
    return ByteTable<4, false, D8>(args.centroids.bytes + channel * kCodes)(codes);
  };
  // Two channels a code: four are one row of bytes.
  const uint8_t* pairs = strip + 2 * static_cast<size_t>(shape.page_tokens) + token;
  for (int channel = 0; sub_dim == 2 && channel < shape.dim; channel += 4) {
    const auto pair = hn::LoadU(d8, pairs);
    const auto first = hn::And(pair, hn::Set(d8, 15));
    const auto second = hn::ShiftRight<4>(pair);
    pairs += shape.page_tokens;
    prefetcher.Line();
    const hn::Vec<D8> values[4] = {look_up(channel, first), look_up(channel + 1, first),
                                   look_up(channel + 2, second), look_up(channel + 3, second)};
    AddFourChannels<kRows, D8>(args, row, channel, values, sums);
  }
  for (int channel = 0; sub_dim != 2 && channel < shape.dim; channel += 4) {
    hn::Vec<D8> values[4];
    for (int i = 0; i < 4; ++i) {
      values[i] =
          look_up(channel + i, LoadPqCodes<4>(d8, shape, strip, (channel + i) / sub_dim, token));
    }
    prefetcher.Line();
    AddFourChannels<kRows, D8>(args, row, channel, values, sums);
  }
}

// Adds all channels under codes of more than 4 bits, two at a time.
template <int kBits, int kRows, class D8, class V32>
HWY_INLINE void AddChannelsByTwo(const PqScoresArgs& args, int row, int token,
                                 LinePrefetcher& prefetcher, V32 (&sums)[kRows][4]) {
  const D8 d8;
  const PqShape& shape = args.shape;
  const int sub_dim = shape.sub_dim();
  const auto* strip = reinterpret_cast<const uint8_t*>(args.strip);
  constexpr size_t kCodes = size_t{1} << kBits;
  const auto look_up = [&](int channel, hn::Vec<D8> codes) HWY_ATTR {
    return ByteTable<kBits, false, D8>(args.centroids.bytes + channel * kCodes)(codes);
  };
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
}

// Scores of kTokens tokens from `token` on, for kRows rows.
template <int kBits, int kTokens, int kRows>
HWY_INLINE void ScoreBytesTile(const PqScoresArgs& args, int row, int token, const float* gains,
                               LinePrefetcher& prefetcher) {
  using D8 = TokenBytes<kTokens>;
  const LanesOf<D8> d32;
  using V32 = hn::Vec<decltype(d32)>;
  V32 sums[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    int32_t offset;
    __builtin_memcpy(&offset, args.query + (row + r) * args.query_stride + 4, 4);
    for (V32& sum : sums[r]) sum = hn::Set(d32, offset);
  }
  prefetcher.BeginRange();
  if constexpr (kBits == 4) {
    AddChannelsByFour<kRows, D8>(args, row, token, prefetcher, sums);
  } else {
    AddChannelsByTwo<kBits, kRows, D8>(args, row, token, prefetcher, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    float step;
    __builtin_memcpy(&step, args.query + (row + r) * args.query_stride, 4);
    StoreTokenSums<kTokens>(sums[r], step, gains + token,
                            args.scores + (row + r) * args.scores_stride + token);
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
inline constexpr int kVectorBytes = HWY_MAX_BYTES < 64 ? HWY_MAX_BYTES : 64;

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

// Adds what the tables of the query's two planes hold under the codes of all sub-spaces. A vector s
// of their bytes has two tokens in each 16-bit half:
//   all += s, odd += s >> 8: then the even ones are all - (odd << 8), modulo 2^16.
template <int kRows, class D8, class V16>
HWY_INLINE void AddNibbleLookups(const PqScoresArgs& args, int row, int token,
                                 LinePrefetcher& prefetcher, V16 (&all)[kRows][2],
                                 V16 (&odd)[kRows][2]) {
  const D8 d8;
  const hn::Repartition<uint16_t, D8> d16;
  const PqShape& shape = args.shape;
  const size_t page_tokens = static_cast<size_t>(shape.page_tokens);
  const auto* codes =
      reinterpret_cast<const uint8_t*>(args.strip) + 2 * page_tokens + static_cast<size_t>(token);
  const size_t high = 16 * static_cast<size_t>(shape.subspaces);
  const auto* tables = reinterpret_cast<const uint8_t*>(args.query + row * args.query_stride +
                                                        PqQueryTableOffset(shape.dim));
  const auto add = [&](V16& whole, V16& upper, hn::Vec<D8> sum) HWY_ATTR {
    const V16 both = hn::BitCast(d16, sum);
    whole = hn::Add(whole, both);
    upper = hn::Add(upper, hn::ShiftRight<8>(both));
  };
  const auto look_up = [&](const uint8_t* table, hn::Vec<D8> code) HWY_ATTR {
    return hn::TableLookupBytes(hn::LoadDup128(d8, table), code);
  };
  const int pairs = shape.subspaces / 2;
  for (int p = 0; p < pairs; ++p, codes += page_tokens) {
    const auto pair = hn::LoadU(d8, codes);
    const auto first = hn::And(pair, hn::Set(d8, 15));
    const auto second = hn::ShiftRight<4>(pair);
    prefetcher.Line();
    const uint8_t* low = tables + 32 * static_cast<size_t>(p);
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* at = low + r * args.query_stride;
      add(all[r][0], odd[r][0], hn::Add(look_up(at, first), look_up(at + 16, second)));
      add(all[r][1], odd[r][1],
          hn::Add(look_up(at + high, first), look_up(at + high + 16, second)));
    }
  }
  if (shape.subspaces % 2 == 1) {
    const auto last = hn::And(hn::LoadU(d8, codes), hn::Set(d8, 15));
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* at = tables + r * args.query_stride + 32 * static_cast<size_t>(pairs);
      add(all[r][0], odd[r][0], look_up(at, last));
      add(all[r][1], odd[r][1], look_up(at + high, last));
    }
  }
}

// scores[t] = ((sum of the low plane + 128 * that of the high one) * step + offset) * gain, for
// kTokens tokens from `token` on; the sums are those of AddNibbleLookups.
template <int kTokens, int kRows, class V16>
HWY_INLINE void StoreNibbleScores(const PqScoresArgs& args, int row, int token,
                                  const V16 (&all)[kRows][2], const V16 (&odd)[kRows][2],
                                  const float* gains) {
  const hn::Repartition<uint16_t, TokenBytes<kTokens>> d16;
  const DF df;
  const DI di;
  const hn::Rebind<uint16_t, DI> half;
  constexpr size_t kHalf = kTokens / 2 < hn::MaxLanes(DF()) ? hn::MaxLanes(DF()) : kTokens / 2;
  alignas(64) uint16_t parts[2][2][kHalf] = {};  // [plane][even, odd]
  alignas(64) float found[2 * kHalf];
  for (int r = 0; r < kRows; ++r) {
    for (int plane = 0; plane < 2; ++plane) {
      hn::StoreU(hn::Sub(all[r][plane], hn::ShiftLeft<8>(odd[r][plane])), d16, parts[plane][0]);
      hn::StoreU(odd[r][plane], d16, parts[plane][1]);
    }
    float numbers[2];  // table_step, table_offset
    __builtin_memcpy(numbers, args.query + (row + r) * args.query_stride + 12, 8);
    const VF step = hn::Set(df, numbers[0]);
    const VF offset = hn::Set(df, numbers[1]);
    const auto finish = [&](const uint16_t* low, const uint16_t* upper) HWY_ATTR {
      const VI sum = hn::Add(hn::PromoteTo(di, hn::Load(half, low)),
                             hn::ShiftLeft<7>(hn::PromoteTo(di, hn::Load(half, upper))));
      return hn::Add(hn::Mul(hn::ConvertTo(df, sum), step), offset);
    };
    for (size_t i = 0; i < kTokens / 2; i += hn::Lanes(df)) {
      hn::StoreInterleaved2(finish(parts[0][0] + i, parts[1][0] + i),
                            finish(parts[0][1] + i, parts[1][1] + i), df, found + 2 * i);
    }
    float* scores = args.scores + (row + r) * args.scores_stride + token;
    for (size_t t = 0; t < kTokens; t += hn::Lanes(df)) {
      hn::StoreU(hn::Mul(hn::Load(df, found + t), hn::Load(df, gains + token + t)), df, scores + t);
    }
  }
}

// Scores of kTokens tokens from `token` on, for kRows rows.
template <int kTokens, int kRows>
HWY_INLINE void ScoreNibblesTile(const PqScoresArgs& args, int row, int token, const float* gains,
                                 LinePrefetcher& prefetcher) {
  using D8 = TokenBytes<kTokens>;
  const hn::Repartition<uint16_t, D8> d16;
  using V16 = hn::Vec<decltype(d16)>;
  // Of M <= 512 codes half are added up in bytes: sums stay below 2^16.
  V16 all[kRows][2], odd[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int plane = 0; plane < 2; ++plane) all[r][plane] = odd[r][plane] = hn::Zero(d16);
  }
  prefetcher.BeginRange();
  AddNibbleLookups<kRows, D8>(args, row, token, prefetcher, all, odd);
  StoreNibbleScores<kTokens>(args, row, token, all, odd, gains);
}

template <int kTokens>
void ScoresNibblesTokens(const PqScoresArgs& args) {
  alignas(64) float gains[kMaxPageTokens];
  WidenGains(args.strip, args.shape.page_tokens, gains);
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    for (int token = 0; token < args.num_tokens; token += kTokens)
      ScoreNibblesTile<kTokens, kRows>(args, row, token, gains, local);
    prefetcher = local;
  });
  prefetcher.Save();
}

void ScoresNibbles(const PqScoresArgs& args) {
  // Never 64: spreading 16 bytes over a register of 64 takes a shuffle, over one of 32 only a load.
  if (kVectorBytes >= 32 && args.shape.page_tokens >= 32) {
    return ScoresNibblesTokens < kVectorBytes < 32 ? kVectorBytes : 32 > (args);
  }
  ScoresNibblesTokens<16>(args);
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
  const int tokens = AlignUp(args.num_tokens, lanes);
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
