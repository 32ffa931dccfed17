// Weighted sums over turned values in integers, for every target. See turned_kernels.h for the
// layouts and scalar_turned.cc for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_TURNED_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_TURNED_VALUES_INL_H_
#undef VARVE_KERNELS_SIMD_TURNED_VALUES_INL_H_
#else
#define VARVE_KERNELS_SIMD_TURNED_VALUES_INL_H_
#endif

#include <limits>

#include "kernels/kernel_tables.h"
#include "kernels/simd_rows-inl.h"
#include "kernels/simd_turned_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// The weights of a page times its scales as integers: level = 128 * high + low, 7 bits each. Coarse
// rows have low = 0; if all rows are coarse, there is no low plane.
template <int kRows>
struct TurnedWeights {
  alignas(64) uint8_t high[kRows][kMaxPageTokens];
  alignas(64) uint8_t low[kRows][kMaxPageTokens];
  float step[kRows];  // value of one unit of the sums
  bool all_coarse;
};

// Stores the low bytes of 64 levels that fit 7 bits.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
HWY_INLINE void StoreLevels(const VI (&level)[4], uint8_t* to) {
  const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(level[0].raw, level[1].raw),
                                             _mm512_packs_epi32(level[2].raw, level[3].raw));
  // Packing works within 128 bits: dword 4 i + j is that of quad i + 4 j.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_store_si512(to, _mm512_permutexvar_epi32(order, packed));
}
#endif

// Levels of row r from its products [page_tokens], which become levels by `factor`.
template <int kRows>
HWY_INLINE void StoreTurnedRow(const float* products, size_t tokens, VF factor, bool coarse, int r,
                               TurnedWeights<kRows>& out) {
  const DF df;
  const DI di;
  size_t t = 0;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  for (; out.all_coarse && t + 64 <= tokens; t += 64) {
    VI level[4];
    Unrolled<4>([&]<int i>() HWY_ATTR {
      level[i] = NearestLevel(hn::Add(hn::Mul(hn::Load(df, products + t + 16 * i), factor),
                                      hn::Load(df, kDither.data() + t + 16 * i)));
    });
    StoreLevels(level, &out.high[r][t]);
  }
#endif
  for (; t < tokens; t += hn::Lanes(df)) {
    const VF product = hn::Load(df, products + t);
    if (coarse) {
      const VI level =
          NearestLevel(hn::Add(hn::Mul(product, factor), hn::Load(df, kDither.data() + t)));
      StoreLowBytes(level, &out.high[r][t]);
      if (!out.all_coarse) StoreLowBytes(hn::Zero(di), &out.low[r][t]);
    } else {
      const VI level = NearestLevel(hn::Mul(product, factor));
      StoreLowBytes(hn::And(level, hn::Set(di, kTurnedPlaneWeights - 1)), &out.low[r][t]);
      StoreLowBytes(hn::ShiftRight<7>(level), &out.high[r][t]);
    }
  }
}

template <int kRows>
HWY_INLINE void RoundTurnedWeights(const AddValuesArgs& args, int row, TurnedWeights<kRows>& out) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  alignas(64) float products[kRows][kMaxPageTokens];
  VF max[kRows];
  VF weight_max[kRows];
  for (int r = 0; r < kRows; ++r) max[r] = weight_max[r] = hn::Zero(df);
  for (size_t t = 0; t < tokens; t += n) {
    const VF scale = LoadValues<FloatType::kF16>(args.strip, t);
    Unrolled<kRows>([&]<int r>() HWY_ATTR {
      const VF weight = hn::LoadU(df, args.weights + (row + r) * args.weights_stride + t);
      const VF product = hn::Mul(weight, scale);
      hn::Store(product, df, &products[r][t]);
      // In this order a NaN is passed over.
      max[r] = hn::Max(product, max[r]);
      weight_max[r] = hn::Max(weight, weight_max[r]);
    });
  }
  alignas(16) float largest[kReducedRows];
  alignas(16) float largest_weight[kReducedRows];
  StoreRowMaxima(max, largest);
  StoreRowMaxima(weight_max, largest_weight);
  bool coarse[kRows];
  out.all_coarse = true;
  for (int r = 0; r < kRows; ++r) {
    coarse[r] = UseCoarseWeights(BlockType::kQ4, largest_weight[r], args.weight_sum[row + r]);
    out.all_coarse = out.all_coarse && coarse[r];
  }
  for (int r = 0; r < kRows; ++r) {
    const bool adds = largest[r] > 0x1p-100f && largest[r] <= std::numeric_limits<float>::max();
    const float levels = coarse[r] ? kTurnedWeights / kTurnedPlaneWeights : kTurnedWeights;
    const VF factor = hn::Set(df, adds ? levels / largest[r] : 0.0f);
    const float unit = out.all_coarse ? kTurnedUnit * kTurnedPlaneWeights : kTurnedUnit;
    out.step[r] = adds ? largest[r] * (unit / kTurnedWeights) : 0.0f;
    StoreTurnedRow(products[r], tokens, factor, coarse[r], r, out);
  }
}

// Sums of kBlocks blocks of 32 channels. kLow: whether any row uses the low plane.
template <int kBits, int kRows, int kBlocks, bool kLow>
HWY_INLINE void AddTurnedBlocks(const std::byte* cells, size_t tokens, size_t dim,
                                const TurnedWeights<kRows>& weights, float* out,
                                LinePrefetcher& prefetcher) {
  constexpr int kParts = 2 * kBlocks;  // of 16 channels
  const DF df;
  const DI di;
  const VI table = TurnedCell<kBits>::SignedTable();
  const size_t groups = tokens / kTileTokens;
  for (size_t lane = 0; lane < 16; lane += hn::Lanes(df)) {
    VI high[kRows][kParts];
    VI low[kRows][kParts];
    Unrolled<kRows * kParts>([&]<int kAt>() HWY_ATTR {
      high[kAt / kParts][kAt % kParts] = low[kAt / kParts][kAt % kParts] = hn::Zero(di);
    });
    for (size_t group = 0; group < groups; ++group) {
      prefetcher.Lines<kBits * kBlocks>();
      const uint8_t* weights_high = &weights.high[0][kTileTokens * group];
      const uint8_t* weights_low = &weights.low[0][kTileTokens * group];
      Unrolled<kTurnedPlanes / 2>([&]<int kQuad>() HWY_ATTR {
        VI levels[kParts];
        Unrolled<kParts>([&]<int p>() HWY_ATTR {
          const TurnedCell<kBits> cell(cells + (p / 2 * groups + group) * TurnedCellBytes(kBits),
                                       lane);
          levels[p] = cell.template Levels<2 * kQuad + p % 2>(table);
        });
        Unrolled<kRows>([&]<int r>() HWY_ATTR {
          const VI weight = BroadcastI32(weights_high + r * kMaxPageTokens + 4 * kQuad);
          Unrolled<kParts>([&]<int p>()
                               HWY_ATTR { high[r][p] = DotSmall(high[r][p], weight, levels[p]); });
          if constexpr (kLow) {
            const VI weight_low = BroadcastI32(weights_low + r * kMaxPageTokens + 4 * kQuad);
            Unrolled<kParts>(
                [&]<int p>() HWY_ATTR { low[r][p] = DotSmall(low[r][p], weight_low, levels[p]); });
          }
        });
      });
    }
    Unrolled<kRows * kParts>([&]<int kAt>() HWY_ATTR {
      constexpr int r = kAt / kParts;
      constexpr int p = kAt % kParts;
      VI total = high[r][p];
      if constexpr (kLow) total = hn::Add(hn::ShiftLeft<7>(total), low[r][p]);
      float* to = out + r * dim + 16 * p + lane;
      hn::StoreU(
          hn::MulAdd(hn::ConvertTo(df, total), hn::Set(df, weights.step[r]), hn::LoadU(df, to)), df,
          to);
    });
  }
}

template <int kBits>
void TurnedAddValues(const AddValuesArgs& args) {
  const size_t tokens = static_cast<size_t>(args.page_tokens);
  const size_t dim = static_cast<size_t>(args.dim);
  const std::byte* cells = args.strip + TurnedCodesOffset(false, args.dim, args.page_tokens);
  const size_t block_bytes = tokens / kTileTokens * TurnedCellBytes(kBits);
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles<kTurnedRows>(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    LinePrefetcher local = prefetcher;  // in registers
    TurnedWeights<kRows> weights;
    RoundTurnedWeights<kRows>(args, row, weights);
    const size_t blocks = dim / kTurnedBlock;
    size_t b = 0;
    const auto add = [&]<int kBlocks, bool kLow>() HWY_ATTR {
      for (; b + kBlocks <= blocks; b += kBlocks) {
        AddTurnedBlocks<kBits, kRows, kBlocks, kLow>(
            cells + b * block_bytes, tokens, dim, weights,
            args.accumulators + row * dim + b * kTurnedBlock, local);
      }
    };
    if (weights.all_coarse) {
      // Two blocks have enough chains of dot products to hide their latency.
      if constexpr (kByteDot) add.template operator()<2, false>();
      add.template operator()<1, false>();
    } else {
      add.template operator()<1, true>();
    }
    prefetcher = local;
  });
  prefetcher.Save();
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
