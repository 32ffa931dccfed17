// Weighted values of pq strips, for every target. See pq_kernels.h for the layouts and scalar_pq.cc
// for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_PQ_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_PQ_VALUES_INL_H_
#undef VARVE_KERNELS_SIMD_PQ_VALUES_INL_H_
#else
#define VARVE_KERNELS_SIMD_PQ_VALUES_INL_H_
#endif

#include "kernels/kernel_tables.h"
#include "kernels/simd_pq_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Whether 16 accumulators and what they need fit in the register file.
inline constexpr bool kPairSubspaces = HWY_MAX_BYTES >= 64;

// Whether levels are multiplied as bytes, in pages where all of them are.
template <int kTokens>
constexpr bool UsesByteLevels() {
  return kByteDot && kTokens == 64;
}

inline constexpr size_t kMaxRunTokens = size_t{kMaxValuePages} * kMaxPageTokens;

// Weights of a few rows over all pages of a call, as integers.
template <int kRows>
struct LevelRows {
  // [kRows][pages * page_tokens]; within a run of kTokens the even tokens first, then the odd ones.
  alignas(64) int16_t words[kRows][kMaxRunTokens];
  // The same in the order of tokens, for pages that are not wide.
  alignas(64) uint8_t bytes[kRows][kMaxRunTokens];
  // Whether words are used: some row has a level that does not fit a byte, or the target gains
  // nothing from bytes.
  bool wide[kMaxValuePages];
  float factors[kRows];
  bool any = false;  // whether a row has a level that is not 0
};

// weight * gain of one row over all pages: [pages * page_tokens]. Returns the factor of levels.
HWY_INLINE float WeighTokens(const PqValuesArgs& args, int row, const float* gains,
                             float* weighed) {
  const DF df;
  const size_t page_tokens = static_cast<size_t>(args.shape.page_tokens);
  VF largest = hn::Zero(df);
  VF sum = hn::Zero(df);
  for (size_t p = 0; p < args.pages.size(); ++p) {
    const float* weights = args.pages[p].weights + row * args.weights_stride;
    for (size_t t = 0; t < page_tokens; t += hn::Lanes(df)) {
      const size_t at = p * page_tokens + t;
      const VF x = hn::Mul(hn::LoadU(df, weights + t), hn::Load(df, gains + at));
      hn::Store(x, df, weighed + at);
      largest = hn::Max(largest, x);
      sum = hn::Add(sum, x);
    }
  }
  return PqLevelFactor(args.shape.bits, hn::GetLane(hn::MaxOfLanes(df, largest)),
                       hn::GetLane(hn::SumOfLanes(df, sum)));
}

// Levels of one page of a row as words; those of `levels` are in the order of tokens.
template <int kTokens>
HWY_INLINE void StoreWords(const float* levels, size_t page_tokens, int16_t* words) {
  const DF df;
  const DI di;
  for (size_t t = 0; t < page_tokens;) {
    int16_t* to = words + t / kTokens * kTokens + t % kTokens / 2;
    if constexpr (2 * hn::MaxLanes(df) <= kTokens) {
      const hn::Rebind<int16_t, DI> d16;
      VF even, odd;
      hn::LoadInterleaved2(df, levels + t, even, odd);
      hn::StoreU(hn::DemoteTo(d16, NearestLevel(even)), d16, to);
      hn::StoreU(hn::DemoteTo(d16, NearestLevel(odd)), d16, to + kTokens / 2);
      t += 2 * hn::Lanes(df);
    } else {
      alignas(64) int32_t natural[hn::MaxLanes(di)];
      hn::Store(NearestLevel(hn::Load(df, levels + t)), di, natural);
      for (int i = 0; i < kTokens; ++i)
        to[i / 2 + i % 2 * (kTokens / 2)] = static_cast<int16_t>(natural[i]);
      t += kTokens;
    }
  }
}

template <int kTokens, int kRows>
HWY_NOINLINE void RoundPqWeights(const PqValuesArgs& args, int row, const float* gains,
                                 LevelRows<kRows>& out) {
  const DF df;
  const size_t page_tokens = static_cast<size_t>(args.shape.page_tokens);
  const size_t lanes = hn::Lanes(df);
  alignas(64) float levels[kRows][kMaxRunTokens];
  out.any = false;
  for (int r = 0; r < kRows; ++r) {
    out.factors[r] = WeighTokens(args, row + r, gains, levels[r]);
    out.any = out.any || out.factors[r] > 0.0f;
  }
  if (!out.any) return;
  const VF zero = hn::Zero(df);
  for (size_t p = 0; p < args.pages.size(); ++p) {
    VF most = zero;
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(df, out.factors[r]);
      // A row without weight may hold NaN: its levels are 0.
      const auto keep = hn::Gt(factor, zero);
      float* x = levels[r] + p * page_tokens;
      for (size_t t = 0; t < page_tokens; t += lanes) {
        const VF scaled = hn::IfThenElseZero(keep, hn::Mul(hn::Load(df, x + t), factor));
        const VF level = hn::Max(hn::Add(scaled, hn::Load(df, kDither.data() + t)), zero);
        most = hn::Max(most, level);
        hn::Store(level, df, x + t);
      }
    }
    out.wide[p] = !UsesByteLevels<kTokens>() || hn::GetLane(hn::MaxOfLanes(df, most)) >= 255.0f;
    for (int r = 0; r < kRows; ++r) {
      const float* x = levels[r] + p * page_tokens;
      if (out.wide[p]) {
        StoreWords<kTokens>(x, page_tokens, out.words[r] + p * page_tokens);
      } else {
        for (size_t t = 0; t < page_tokens; t += lanes)
          StoreLowBytes(NearestLevel(hn::Load(df, x + t)), out.bytes[r] + p * page_tokens + t);
      }
    }
  }
}

// The sums of the lanes of four vectors, as four lanes.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> SumFour(D32 d, V a, V b, V c, V e) {
  const hn::Repartition<int64_t, D32> d64;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const auto high = hn::InterleaveUpper(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const V sums = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  const auto fold = [](auto tag, auto v, auto&& self) HWY_ATTR {
    if constexpr (hn::MaxLanes(tag) == 4) {
      return v;
    } else {
      const hn::Half<decltype(tag)> half;
      return self(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), self);
    }
  };
  return fold(d, sums, fold);
}

template <class D8>
HWY_INLINE hn::Vec<LanesOf<D8>> EvenSigned(D8, hn::Vec<D8> v) {
  const LanesOf<D8> d32;
  const hn::Repartition<int16_t, D8> d16;
  return hn::BitCast(d32, hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, v))));
}
template <class D8>
HWY_INLINE hn::Vec<LanesOf<D8>> OddSigned(D8, hn::Vec<D8> v) {
  const LanesOf<D8> d32;
  const hn::Repartition<int16_t, D8> d16;
  return hn::BitCast(d32, hn::ShiftRight<8>(hn::BitCast(d16, v)));
}

// acc[r][c] += the levels of each row times the values of channel c, for kTokens tokens from `at`
// on. kBytes: the levels are bytes.
template <bool kBytes, int kTokens, int kRows, int kSums, class V32>
HWY_INLINE void AddValuesTimesLevels(const LevelRows<kRows>& levels, size_t at, int c,
                                     hn::Vec<TokenBytes<kTokens>> values, V32 (&acc)[4][kSums]) {
  using D8 = TokenBytes<kTokens>;
  const D8 d8;
  const LanesOf<D8> d32;
  if constexpr (kBytes) {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      acc[r][c] = AddQuads(d32, acc[r][c], hn::BitCast(d32, hn::Load(d8, levels.bytes[r] + at)),
                           hn::BitCast(d32, values));
    }
  } else {
    const V32 even = EvenSigned(d8, values);
    const V32 odd = OddSigned(d8, values);
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const int16_t* words = levels.words[r] + at;
      const hn::Repartition<int16_t, D8> d16;
      acc[r][c] = AddPairs(d32, acc[r][c], even, hn::BitCast(d32, hn::LoadU(d16, words)));
      acc[r][c] =
          AddPairs(d32, acc[r][c], odd, hn::BitCast(d32, hn::LoadU(d16, words + kTokens / 2)));
    }
  }
}

// The next sums of kChannels channels of kSubspaces sub-spaces from m on, beginning with `channel`
// (of each sub-space all, if there are several), over all pages: into sums [.., 4], a lane per row.
template <int kBits, int kTokens, int kRows, int kSubspaces, int kChannels>
HWY_INLINE void SumChannels(const PqValuesArgs& args, const LevelRows<kRows>& levels, int m,
                            int channel, int32_t* sums, LinePrefetcher& prefetcher) {
  using D8 = TokenBytes<kTokens>;
  using Table = ByteTable<kBits, true, D8>;
  const D8 d8;
  const LanesOf<D8> d32;
  using V32 = hn::Vec<LanesOf<D8>>;
  constexpr int kSums = kSubspaces * kChannels;
  const PqShape& shape = args.shape;
  const uint8_t* bytes = args.centroids.bytes + (static_cast<size_t>(channel) << kBits);
  const auto table = [&](int i) HWY_ATTR {
    return Table(bytes + (static_cast<size_t>(i < kSums ? i : 0) << kBits));
  };
  const Table tables[4] = {table(0), table(1), table(2), table(3)};
  V32 acc[4][kSums];
  for (auto& row : acc) {
    for (V32& sum : row) sum = hn::Zero(d32);
  }
  const size_t page_tokens = static_cast<size_t>(shape.page_tokens);
  const auto add_page = [&]<bool kBytes>(size_t p) HWY_ATTR {
    const auto* strip = reinterpret_cast<const uint8_t*>(args.pages[p].strip);
    for (size_t t = 0; t < page_tokens; t += kTokens) {
      const size_t at = p * page_tokens + t;
      HWY_UNROLL(2)
      for (int s = 0; s < kSubspaces; ++s) {
        const auto codes = LoadPqCodes<kBits>(d8, shape, strip, m + s, static_cast<int>(t));
        HWY_UNROLL(2)
        for (int i = 0; i < kChannels; ++i) {
          const int c = s * kChannels + i;
          const auto values = tables[c](codes);
          AddValuesTimesLevels<kBytes, kTokens>(levels, at, c, values, acc);
        }
      }
    }
  };
  for (size_t p = 0; p < args.pages.size(); ++p) {
    prefetcher.Line();
    if constexpr (UsesByteLevels<kTokens>()) {
      if (!levels.wide[p]) {
        add_page.template operator()<true>(p);
        continue;
      }
    }
    add_page.template operator()<false>(p);
  }
  const hn::CappedTag<int32_t, 4> di4;
  for (int c = 0; c < kSums; ++c)
    hn::StoreU(SumFour(d32, acc[0][c], acc[1][c], acc[2][c], acc[3][c]), di4, sums + 4 * c);
}

template <int kBits, int kTokens, int kRows>
HWY_NOINLINE void SumAllChannels(const PqValuesArgs& args, const LevelRows<kRows>& levels,
                                 int32_t* sums, LinePrefetcher& prefetcher) {
  LinePrefetcher local = prefetcher;  // in registers
  const int sub_dim = args.shape.sub_dim();
  int m = 0;
  // Two sub-spaces share the bytes of their codes, and the weights that are read for them.
  if constexpr (kBits < 8 && kPairSubspaces) {
    for (; sub_dim == 2 && m + 2 <= args.shape.subspaces; m += 2) {
      local.BeginRange();
      SumChannels<kBits, kTokens, kRows, 2, 2>(args, levels, m, 2 * m, sums + 8 * m, local);
    }
  }
  for (; m < args.shape.subspaces; ++m) {
    const int first = m * sub_dim;
    local.BeginRange();
    int j = 0;
    for (; j + 2 <= sub_dim; j += 2) {
      SumChannels<kBits, kTokens, kRows, 1, 2>(args, levels, m, first + j, sums + 4 * (first + j),
                                               local);
    }
    if (j < sub_dim) {
      SumChannels<kBits, kTokens, kRows, 1, 1>(args, levels, m, first + j, sums + 4 * (first + j),
                                               local);
    }
  }
  prefetcher = local;
}

template <int kBits, int kTokens>
void AddValuesTokens(const PqValuesArgs& args) {
  const PqShape& shape = args.shape;
  alignas(64) float gains[kMaxRunTokens];
  for (size_t p = 0; p < args.pages.size(); ++p)
    WidenGains(args.pages[p].strip, shape.page_tokens, gains + p * shape.page_tokens);
  LinePrefetcher prefetcher(args.ahead);
  alignas(64) int32_t sums[4 * kMaxDim];
  ForRowTiles(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LevelRows<kRows> levels;
    RoundPqWeights<kTokens, kRows>(args, row, gains, levels);
    if (!levels.any) return;
    SumAllChannels<kBits, kTokens, kRows>(args, levels, sums, prefetcher);
    for (int r = 0; r < kRows; ++r) {
      if (levels.factors[r] == 0.0f) continue;
      float* out = args.accumulators + static_cast<size_t>(row + r) * shape.dim;
      const int sub_dim = shape.sub_dim();
      for (int m = 0, d = 0; m < shape.subspaces; ++m) {
        const float factor = args.centroids.scales[m] / levels.factors[r];
        for (int j = 0; j < sub_dim; ++j, ++d)
          out[d] += static_cast<float>(sums[4 * d + r]) * factor;
      }
    }
  });
  prefetcher.Save();
}

template <int kBits>
void AddValuesBytes(const PqValuesArgs& args) {
  if (kVectorBytes >= 64 && args.shape.page_tokens >= 64) {
    return AddValuesTokens<kBits, kVectorBytes>(args);
  }
  if (kVectorBytes >= 32 && args.shape.page_tokens >= 32) {
    return AddValuesTokens < kBits, kVectorBytes < 32 ? kVectorBytes : 32 > (args);
  }
  AddValuesTokens<kBits, 16>(args);
}

// Up to four rows at a time: the weight of a code is a vector of one lane per row.
HWY_INLINE void AddValuesCentroidRows(const PqValuesArgs& args, int row, int rows,
                                      const float* gains, float* weight_of, float* weighed) {
  const hn::CappedTag<float, 4> df;
  const PqShape& shape = args.shape;
  const size_t page_tokens = static_cast<size_t>(shape.page_tokens);
  const size_t num_codes = static_cast<size_t>(shape.num_codes());
  for (size_t p = 0; p < args.pages.size(); ++p) {
    for (size_t t = 0; t < page_tokens; ++t) {
      for (int r = 0; r < 4; ++r) {
        weighed[4 * (p * page_tokens + t) + r] =
            r < rows ? args.pages[p].weights[(row + r) * args.weights_stride + t] *
                           gains[p * page_tokens + t]
                     : 0.0f;
      }
    }
  }
  const int sub_dim = shape.sub_dim();
  uint16_t codes[kMaxPageTokens];
  for (int m = 0; m < shape.subspaces; ++m) {
    for (size_t c = 0; c < num_codes; ++c) hn::Store(hn::Zero(df), df, weight_of + 4 * c);
    for (size_t p = 0; p < args.pages.size(); ++p) {
      ReadPqCodes(shape, args.pages[p].strip, m, codes);
      const float* weights = weighed + 4 * p * page_tokens;
      for (size_t t = 0; t < page_tokens; ++t) {
        float* at = weight_of + 4 * static_cast<size_t>(codes[t]);
        hn::Store(hn::Add(hn::Load(df, at), hn::Load(df, weights + 4 * t)), df, at);
      }
    }
    for (int j = 0; j < sub_dim; ++j) {
      const int channel = m * sub_dim + j;
      const uint8_t* bytes = args.centroids.bytes + static_cast<size_t>(channel) * num_codes;
      auto sum = hn::Zero(df);
      for (size_t c = 0; c < num_codes; ++c) {
        const auto value = hn::Set(df, static_cast<float>(bytes[c] - 128));
        sum = hn::MulAdd(hn::Load(df, weight_of + 4 * c), value, sum);
      }
      alignas(16) float lanes[4];
      hn::Store(sum, df, lanes);
      for (int r = 0; r < rows; ++r) {
        args.accumulators[static_cast<size_t>(row + r) * shape.dim + channel] +=
            lanes[r] * args.centroids.scales[m];
      }
    }
  }
}

void AddValuesCentroids(const PqValuesArgs& args) {
  alignas(64) float gains[kMaxRunTokens];
  alignas(64) float weighed[4 * kMaxRunTokens];
  alignas(64) float weight_of[size_t{4} << kMaxPqBits];
  for (size_t p = 0; p < args.pages.size(); ++p)
    WidenGains(args.pages[p].strip, args.shape.page_tokens, gains + p * args.shape.page_tokens);
  for (int row = 0; row < args.num_rows; row += 4) {
    const int rows = args.num_rows - row < 4 ? args.num_rows - row : 4;
    AddValuesCentroidRows(args, row, rows, gains, weight_of, weighed);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
