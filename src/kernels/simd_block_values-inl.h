// Weighted sums over q8_0 and q4_0 strips in integers, for every target. See kernels.h for the
// layouts and scalar_kernels.cc for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_BLOCK_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_BLOCK_VALUES_INL_H_
#undef VARVE_KERNELS_SIMD_BLOCK_VALUES_INL_H_
#else
#define VARVE_KERNELS_SIMD_BLOCK_VALUES_INL_H_
#endif

#include "kernels/kernel_tables.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// The weights of a page as integers (see scalar_kernels.cc), for one block of channels: level = 256
// * high + low. One dword is a quad of tokens. Coarse rows have low = 0.
template <int kRows>
struct WeightPlanes {
  // q8_0 without a byte dot product: per quad two dwords of 16-bit pairs (tokens 0 and 2, 1 and 3)
  // at the place of its first two tokens.
  alignas(64) int32_t pairs[kByteDot ? 1 : kRows][kByteDot ? 1 : kMaxPageTokens];
  alignas(64) uint8_t high[kRows][kMaxPageTokens];
  alignas(64) uint8_t low[kRows][kMaxPageTokens];
  // q4_0: 8 and 128 times the sum of the levels, to undo the offset of unsigned codes; in units of
  // 256 levels if all rows are coarse.
  alignas(16) int32_t sum8[kRows];
  alignas(16) int32_t sum128[kRows];
};

// What all blocks of a row share, and what all rows of a block share.
template <int kRows>
struct PageWeights {
  // [kRows][page_tokens]: weight / weight_max * levels, for coarse rows * levels / 256.
  alignas(64) float normal[kRows][kMaxPageTokens];
  alignas(16) float weight_max[kRows];
  bool coarse[kRows];
  bool all_coarse;
  // [blocks] inverse of the largest magnitude of a block's scales in the page.
  alignas(64) float scale_inverse[kMaxDim / kBlockValues];
  // [kRows][blocks] value of one unit in the sums of channels 0-15 and 16-31 of a block.
  alignas(64) float step0[kRows][kMaxDim / kBlockValues];
  alignas(64) float step1[kRows][kMaxDim / kBlockValues];
};

// Quads lie in the planes in groups of 4. PackLevels leaves the 16 quads of 64 tokens transposed:
// dword j of group i is quad i + 4 j instead of 4 i + j.
template <bool kPacked>
constexpr size_t QuadAt(size_t group, size_t j) {
  return kPacked ? group / 4 * 16 + group % 4 + 4 * j : 4 * group + j;
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// 64 levels to two planes of 64 bytes. Packing works within 128 bits, so the 4 tokens of a quad
// stay together and quads come out as the 4 x 4 transpose; levels fit in 16 bits.
template <BlockType kType>
HWY_INLINE void PackLevels(const VI (&level)[4], uint8_t* high, uint8_t* low) {
  const __m512i byte = _mm512_set1_epi16(0xFF);
  __m512i a, b;
  if constexpr (kType == BlockType::kQ8) {
    a = _mm512_packus_epi32(level[0].raw, level[1].raw);
    b = _mm512_packus_epi32(level[2].raw, level[3].raw);
    _mm512_store_si512(high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
  } else {
    // level = 256 * high + low with low in [-128, 127]: rounding the high byte carries over.
    const __m512i half = _mm512_set1_epi16(128);
    a = _mm512_packs_epi32(level[0].raw, level[1].raw);
    b = _mm512_packs_epi32(level[2].raw, level[3].raw);
    _mm512_store_si512(high, _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8),
                                                _mm512_srai_epi16(_mm512_add_epi16(b, half), 8)));
  }
  _mm512_store_si512(low,
                     _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
}

// The same for coarse levels, which are the high plane.
HWY_INLINE VI PackCoarseLevels(const VI (&level)[4]) {
  return VI{_mm512_packs_epi16(_mm512_packs_epi32(level[0].raw, level[1].raw),
                               _mm512_packs_epi32(level[2].raw, level[3].raw))};
}

// One dword (or float) per row from four vectors at once: `combine` is a sum or a maximum. Lanes of
// 128 bits become (row 0, 1, 2, 3), then the lanes are combined.
template <class Combine512, class Combine256, class Combine128>
HWY_INLINE __m128i ReduceFourRows(__m512i r0, __m512i r1, __m512i r2, __m512i r3, Combine512&& c512,
                                  Combine256&& c256, Combine128&& c128) {
  const __m512i r01 = c512(_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
  const __m512i r23 = c512(_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
  const __m512i all = c512(_mm512_unpacklo_epi64(r01, r23), _mm512_unpackhi_epi64(r01, r23));
  const __m256i half = c256(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return c128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
#endif

// The largest lane of each row.
template <int kRows>
HWY_INLINE void StoreMaxima(const VF (&max)[kRows], float* out) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (kRows == 4) {
    // Not negative, so they sort like integers.
    _mm_store_si128(reinterpret_cast<__m128i*>(out),
                    ReduceFourRows(
                        _mm512_castps_si512(max[0].raw), _mm512_castps_si512(max[1].raw),
                        _mm512_castps_si512(max[2].raw), _mm512_castps_si512(max[3].raw),
                        [](__m512i a, __m512i b) HWY_ATTR { return _mm512_max_epi32(a, b); },
                        [](__m256i a, __m256i b) HWY_ATTR { return _mm256_max_epi32(a, b); },
                        [](__m128i a, __m128i b) HWY_ATTR { return _mm_max_epi32(a, b); }));
    return;
  }
#endif
  for (int r = 0; r < kRows; ++r) out[r] = hn::GetLane(hn::MaxOfLanes(DF(), max[r]));
}

// 8 and 128 times the sum of the lanes of each row.
template <int kRows>
HWY_INLINE void StoreSums(const VI (&sum)[kRows], int32_t* sum8, int32_t* sum128) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (kRows == 4) {
    const __m128i rows = ReduceFourRows(
        sum[0].raw, sum[1].raw, sum[2].raw, sum[3].raw,
        [](__m512i a, __m512i b) HWY_ATTR { return _mm512_add_epi32(a, b); },
        [](__m256i a, __m256i b) HWY_ATTR { return _mm256_add_epi32(a, b); },
        [](__m128i a, __m128i b) HWY_ATTR { return _mm_add_epi32(a, b); });
    _mm_store_si128(reinterpret_cast<__m128i*>(sum8), _mm_slli_epi32(rows, 3));
    _mm_store_si128(reinterpret_cast<__m128i*>(sum128), _mm_slli_epi32(rows, 7));
    return;
  }
#endif
  for (int r = 0; r < kRows; ++r) {
    // Unsigned, because what a NaN left behind may wrap.
    const uint32_t total = static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(DI(), sum[r])));
    sum8[r] = static_cast<int32_t>(total << 3);
    sum128[r] = static_cast<int32_t>(total << 7);
  }
}

// f16 bits of the largest magnitude among the scales of a block: positive halves sort like
// integers.
HWY_INLINE uint16_t LargestScale(const uint16_t* scales, size_t tokens) {
  const hn::CappedTag<uint16_t, kTileTokens> d16;
  const auto magnitude = hn::Set(d16, 0x7FFF);
  auto max = hn::And(hn::LoadU(d16, scales), magnitude);
  for (size_t t = hn::Lanes(d16); t < tokens; t += hn::Lanes(d16)) {
    max = hn::Max(max, hn::And(hn::LoadU(d16, scales + t), magnitude));
  }
#if HWY_MAX_BYTES >= 32
  const hn::Half<decltype(d16)> d8;
  return hn::GetLane(hn::MaxOfLanes(d8, hn::Max(hn::LowerHalf(d8, max), hn::UpperHalf(d8, max))));
#else
  return hn::GetLane(hn::MaxOfLanes(d16, max));
#endif
}

template <BlockType kType, int kRows>
HWY_INLINE void PreparePage(const AddValuesArgs& args, int row, PageWeights<kRows>& page) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  VF max[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float* weights = args.weights + (row + r) * args.weights_stride;
    max[r] = hn::Zero(df);
    for (size_t t = 0; t < tokens; t += n) max[r] = hn::Max(hn::LoadU(df, weights + t), max[r]);
  }
  StoreMaxima(max, page.weight_max);
  page.all_coarse = true;
  for (int r = 0; r < kRows; ++r) {
    const float* weights = args.weights + (row + r) * args.weights_stride;
    // Weights below 2^-100 are too small for f32 to add; NaN shows in the sum.
    if (!(page.weight_max[r] > 0x1p-100f)) page.weight_max[r] = 0.0f;
    page.coarse[r] = UseCoarseWeights(kType, page.weight_max[r], args.weight_sum[row + r]);
    page.all_coarse = page.all_coarse && page.coarse[r];
    const float levels =
        kWeightLevels[static_cast<int>(kType)] * (page.coarse[r] ? 1.0f / 256 : 1.0f);
    const VF factor = hn::Set(df, page.weight_max[r] > 0.0f ? levels / page.weight_max[r] : 0.0f);
    for (size_t t = 0; t < tokens; t += n) {
      // A NaN counts as 0: packing to 16 bits would saturate its level, sums would overflow.
      const VF weight = hn::LoadU(df, weights + t);
      const VF known = hn::IfThenElseZero(hn::Eq(weight, weight), weight);
      hn::Store(hn::Mul(known, factor), df, &page.normal[r][t]);
    }
  }
  const size_t blocks = static_cast<size_t>(args.dim) / kBlockValues;
  alignas(64) uint16_t bits[kMaxDim / kBlockValues] = {};
  for (size_t b = 0; b < blocks; ++b) {
    bits[b] = LargestScale(reinterpret_cast<const uint16_t*>(args.strip) + b * tokens, tokens);
  }
  for (size_t b = 0; b < blocks; b += n) {
    const VF scale = LoadValues<FloatType::kF16>(reinterpret_cast<const std::byte*>(bits), b);
    for (int r = 0; r < kRows; ++r) {
      // Sums come in units of 256 levels if all rows are coarse, and those of high nibbles
      // times 16.
      const float unit = (page.all_coarse ? 256.0f : 1.0f) / kWeightLevels[static_cast<int>(kType)];
      const VF step = hn::Mul(hn::Mul(hn::Set(df, page.weight_max[r]), scale), hn::Set(df, unit));
      hn::Store(step, df, page.step0[r] + b);
      hn::Store(kType == BlockType::kQ8 ? step : hn::Mul(step, hn::Set(df, 0.0625f)), df,
                page.step1[r] + b);
    }
    hn::Store(hn::IfThenElseZero(hn::Gt(scale, hn::Zero(df)), hn::Div(hn::Set(df, 1.0f), scale)),
              df, page.scale_inverse + b);
  }
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Levels of all rows, 64 tokens at a time, into planes in the order of PackLevels. q4_0: their sums
// are added to `sum`.
template <BlockType kType, int kRows>
HWY_INLINE void QuantizePacked(const std::byte* scales, size_t tokens, VF inverse,
                               const PageWeights<kRows>& page, WeightPlanes<kRows>& planes,
                               VI (&sum)[kRows]) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  const DI di;
  for (size_t t = 0; t < tokens; t += 64) {
    VF scale[4];
    for (int i = 0; i < 4; ++i) {
      scale[i] = hn::Mul(LoadValues<FloatType::kF16>(scales, t + 16 * i), inverse);
    }
    for (int r = 0; r < kRows; ++r) {
      VI level[4];
      if (!kQ8 && page.coarse[r]) {
        for (int i = 0; i < 4; ++i) {
          level[i] = NearestLevel(hn::MulAdd(hn::Load(df, &page.normal[r][t + 16 * i]), scale[i],
                                             hn::Load(df, &kDither[t + 16 * i])));
        }
        const VI packed = PackCoarseLevels(level);
        hn::Store(packed, di, reinterpret_cast<int32_t*>(&planes.high[r][t]));
        if (!page.all_coarse)
          hn::Store(hn::Zero(di), di, reinterpret_cast<int32_t*>(&planes.low[r][t]));
        sum[r] = DotBytes(sum[r], hn::Set(di, 0x01010101), packed);
      } else {
        for (int i = 0; i < 4; ++i) {
          level[i] = NearestLevel(hn::Mul(hn::Load(df, &page.normal[r][t + 16 * i]), scale[i]));
        }
        PackLevels<kType>(level, &planes.high[r][t], &planes.low[r][t]);
        if constexpr (!kQ8) {
          sum[r] =
              hn::Add(sum[r], hn::Add(hn::Add(level[0], level[1]), hn::Add(level[2], level[3])));
        }
      }
    }
  }
  for (int r = 0; !kQ8 && !page.all_coarse && r < kRows; ++r) {
    if (page.coarse[r]) sum[r] = hn::ShiftLeft<8>(sum[r]);
  }
}
#endif

// The same with planes in the order of tokens, a vector at a time.
template <BlockType kType, int kRows>
HWY_INLINE void QuantizeInOrder(const std::byte* scales, size_t tokens, VF inverse,
                                const PageWeights<kRows>& page, WeightPlanes<kRows>& planes,
                                VI (&sum)[kRows]) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  const DI di;
  for (size_t t = 0; t < tokens; t += hn::Lanes(df)) {
    const VF scale = hn::Mul(LoadValues<FloatType::kF16>(scales, t), inverse);
    for (int r = 0; r < kRows; ++r) {
      const VF normal = hn::Load(df, &page.normal[r][t]);
      if (!kQ8 && page.coarse[r]) {
        const VI coarse = NearestLevel(hn::MulAdd(normal, scale, hn::Load(df, &kDither[t])));
        StoreLowBytes(hn::Zero(di), &planes.low[r][t]);
        StoreLowBytes(coarse, &planes.high[r][t]);
        sum[r] = hn::Add(sum[r], page.all_coarse ? coarse : hn::ShiftLeft<8>(coarse));
      } else {
        const VI level = NearestLevel(hn::Mul(normal, scale));
        if constexpr (kQ8 && !kByteDot) {
          const VI across = hn::ShiftLeft<16>(hn::Shuffle1032(level));
          hn::Store(hn::Or(hn::And(level, hn::Set(di, 0xFFFF)), across), di, &planes.pairs[r][t]);
        } else {
          StoreLowBytes(level, &planes.low[r][t]);
          StoreLowBytes(hn::ShiftRight<8>(kQ8 ? level : hn::Add(level, hn::Set(di, 128))),
                        &planes.high[r][t]);
        }
        if constexpr (!kQ8) sum[r] = hn::Add(sum[r], level);
      }
    }
  }
}

template <BlockType kType, int kRows, bool kPacked>
HWY_INLINE void QuantizeWeights(const std::byte* scales, size_t tokens,
                                const PageWeights<kRows>& page, size_t b,
                                WeightPlanes<kRows>& planes) {
  const VF inverse = hn::Set(DF(), page.scale_inverse[b]);
  VI sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(DI());
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (kPacked) QuantizePacked<kType>(scales, tokens, inverse, page, planes, sum);
#endif
  if constexpr (!kPacked) QuantizeInOrder<kType>(scales, tokens, inverse, page, planes, sum);
  if constexpr (kType != BlockType::kQ8) StoreSums(sum, planes.sum8, planes.sum128);
}

// Adds the products of one quad of tokens. q8_0: channels lane… and 16 + lane… of the block. q4_0:
// low nibbles and whole bytes. weights_high and weights_low are the quad's place in row 0 of the
// planes. kLow: whether any row uses the low plane.
template <BlockType kType, bool kLow, int kRows>
HWY_INLINE void AddTokenQuad(const std::byte* codes, size_t quad, size_t lane,
                             const WeightPlanes<kRows>& planes, const uint8_t* weights_high,
                             const uint8_t* weights_low, VI (&high)[kRows][2],
                             VI (&low)[kRows][2]) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  if constexpr (kQ8 && !kByteDot) {
    for (int half = 0; half < 2; ++half) {
      const VI code = LoadI32(codes + (quad * 32 + 16 * half + lane) * 4);
      const VI even = EvenBytesSigned(code);
      const VI odd = OddBytesSigned(code);
      for (int r = 0; r < kRows; ++r) {
        low[r][half] = DotPairs(low[r][half], even, BroadcastI32(&planes.pairs[r][4 * quad]));
        low[r][half] = DotPairs(low[r][half], odd, BroadcastI32(&planes.pairs[r][4 * quad + 1]));
      }
    }
  } else if constexpr (kQ8) {
    const VI code0 = LoadI32(codes + (quad * 32 + lane) * 4);
    const VI code1 = LoadI32(codes + (quad * 32 + 16 + lane) * 4);
    for (int r = 0; r < kRows; ++r) {
      const VI weight_high = BroadcastI32(weights_high + r * kMaxPageTokens);
      const VI weight_low = BroadcastI32(weights_low + r * kMaxPageTokens);
      high[r][0] = DotBytes(high[r][0], weight_high, code0);
      high[r][1] = DotBytes(high[r][1], weight_high, code1);
      low[r][0] = DotBytes(low[r][0], weight_low, code0);
      low[r][1] = DotBytes(low[r][1], weight_low, code1);
    }
  } else {
    const VI code1 = LoadI32(codes + (quad * 16 + lane) * 4);
    const VI code0 = LowNibbles(code1);
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* weight_high = weights_high + r * kMaxPageTokens;
      const uint8_t* weight_low = weights_low + r * kMaxPageTokens;
      high[r][0] = DotBroadcast(high[r][0], code0, weight_high);
      high[r][1] = DotBroadcast(high[r][1], code1, weight_high);
      if constexpr (kLow) {
        low[r][0] = DotBroadcast(low[r][0], code0, weight_low);
        low[r][1] = DotBroadcast(low[r][1], code1, weight_low);
      }
    }
  }
}

// Adds the sums of AddTokenQuad over all tokens to `out`: [kRows, dim], of which channels 0… and
// 16….
template <BlockType kType, bool kLow, int kRows>
HWY_INLINE void AddBlockSums(const VI (&high)[kRows][2], const VI (&low)[kRows][2],
                             const PageWeights<kRows>& page, size_t b,
                             const WeightPlanes<kRows>& planes, size_t dim, float* out) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  for (int r = 0; r < kRows; ++r) {
    float* row_out = out + r * dim;
    VI total[2];
    for (int half = 0; half < 2; ++half) {
      total[half] = kLow ? hn::Add(hn::ShiftLeft<8>(high[r][half]), low[r][half]) : high[r][half];
    }
    if constexpr (!kQ8) {
      total[1] =
          hn::Sub(hn::Sub(total[1], total[0]), BroadcastI32(&planes.sum128[r]));  // 16 w (c1 - 8)
      total[0] = hn::Sub(total[0], BroadcastI32(&planes.sum8[r]));
    }
    const VF step0 = hn::Set(df, page.step0[r][b]);
    const VF step1 = hn::Set(df, page.step1[r][b]);
    const VF before0 = hn::LoadU(df, row_out);
    const VF before1 = hn::LoadU(df, row_out + 16);
    hn::StoreU(hn::MulAdd(hn::ConvertTo(df, total[0]), step0, before0), df, row_out);
    hn::StoreU(hn::MulAdd(hn::ConvertTo(df, total[1]), step1, before1), df, row_out + 16);
  }
}

// Sums of one block of channels. kLow: whether any row uses the low plane.
//
// q4_0: with byte = c0 + 16 c1, the sums of w c0 and of w byte give that of w c1, so the high
// nibbles are never taken apart. |sum| <= 32512 * 255 * 128 tokens < 2^30.
template <BlockType kType, int kRows, bool kPacked, bool kLow>
HWY_INLINE void AddBlock(const std::byte* codes, size_t tokens, size_t dim,
                         const PageWeights<kRows>& page, size_t b,
                         const WeightPlanes<kRows>& planes, float* out,
                         LinePrefetcher& prefetcher) {
  const DF df;
  const DI di;
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(df)) {
    VI high[kRows][2];
    VI low[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) high[r][half] = low[r][half] = hn::Zero(di);
    }
    for (size_t group = 0; group < tokens / 16; ++group) {
      prefetcher.Lines<kType == BlockType::kQ8 ? 8 : 4>();
      const uint8_t* weights_high = &planes.high[0][16 * group];
      const uint8_t* weights_low = &planes.low[0][16 * group];
      HWY_UNROLL(4)
      for (size_t j = 0; j < 4; ++j) {
        AddTokenQuad<kType, kLow>(codes, QuadAt<kPacked>(group, j), lane, planes,
                                  weights_high + 4 * j, weights_low + 4 * j, high, low);
      }
    }
    AddBlockSums<kType, kLow>(high, low, page, b, planes, dim, out + lane);
  }
}

template <BlockType kType, int kRows, bool kPacked>
HWY_INLINE void AddRowsBlock(const AddValuesArgs& args, int row, LinePrefetcher& prefetcher) {
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  const size_t dim = static_cast<size_t>(args.dim);
  const size_t blocks = dim / kBlockValues;
  PageWeights<kRows> page;
  PreparePage<kType, kRows>(args, row, page);
  // All planes first: the latency from scales to levels of one block hides behind the others.
  WeightPlanes<kRows> all_planes[kMaxDim / kBlockValues];
  for (size_t b = 0; b < blocks; ++b) {
    QuantizeWeights<kType, kRows, kPacked>(args.strip + b * tokens * 2, tokens, page, b,
                                           all_planes[b]);
  }
  for (size_t b = 0; b < blocks; ++b) {
    const WeightPlanes<kRows>& planes = all_planes[b];
    const std::byte* codes = args.strip + tokens * blocks * 2 + b * BlockCodeBytes(kType) * tokens;
    float* out = args.accumulators + row * dim + b * kBlockValues;
    if (kType == BlockType::kQ4 && page.all_coarse) {
      AddBlock<kType, kRows, kPacked, false>(codes, tokens, dim, page, b, planes, out, prefetcher);
    } else {
      AddBlock<kType, kRows, kPacked, true>(codes, tokens, dim, page, b, planes, out, prefetcher);
    }
  }
}

template <BlockType kType>
void AddValuesBlock(const AddValuesArgs& args) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const bool packed = args.page_tokens % 64 == 0 && (kByteDot || kType == BlockType::kQ4);
#else
  const bool packed = false;
#endif
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    if (packed) {
      AddRowsBlock<kType, kRows, true>(args, row, local);
    } else {
      AddRowsBlock<kType, kRows, false>(args, row, local);
    }
    prefetcher = local;
  });
  prefetcher.Save();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
