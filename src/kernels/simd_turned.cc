// One table of turned kernels per Highway target, from one source: the quantizer and the table;
// scores and values are in simd_turned_keys-inl.h and simd_turned_values-inl.h.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI and VBMI: Ice Lake, Zen 4 and later

#include <cmath>
#include <vector>

#include "kernels/simd_table_list.h"
#include "kernels/turned_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_turned.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "kernels/simd_turned_keys-inl.h"
#include "kernels/simd_turned_values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// The 16 lanes in which every table adds.
struct SixteenLanes {
  static constexpr size_t kLanes = hn::MaxLanes(DF());
  VF part[kTurnedSumLanes / kLanes];

  HWY_INLINE SixteenLanes() {
    for (VF& v : part) v = hn::Zero(DF());
  }
  HWY_INLINE float Sum() const {
    alignas(64) float lanes[kTurnedSumLanes];
    for (size_t i = 0; i < kTurnedSumLanes / kLanes; ++i)
      hn::Store(part[i], DF(), lanes + i * kLanes);
    return SumOfTurnedLanes(lanes);
  }
};

template <int kBits>
HWY_INLINE void QuantizeTurnedRow(const float* row, size_t dim, float factor, uint8_t* codes,
                                  SixteenLanes& products, SixteenLanes& norms) {
  constexpr int kHalf = 1 << (kBits - 1);
  constexpr auto kLevels = TurnedLevels<kBits>::kPositive;
  const DF df;
  const DI di;
  for (size_t d = 0; d < dim; d += SixteenLanes::kLanes) {
    const VF value = hn::LoadU(df, row + d);
    const VF magnitude = hn::Abs(hn::Mul(value, hn::Set(df, factor)));
    VI place = hn::Zero(di);
    VF level = hn::Set(df, static_cast<float>(kLevels[0]));
    for (int i = 0; i + 1 < kHalf; ++i) {
      const auto middle = hn::Set(df, 0.5f * static_cast<float>(kLevels[i] + kLevels[i + 1]));
      const auto above = hn::Gt(magnitude, middle);
      place = hn::Sub(place, hn::VecFromMask(di, hn::RebindMask(di, above)));
      level = hn::IfThenElse(above, hn::Set(df, static_cast<float>(kLevels[i + 1])), level);
    }
    const auto negative = hn::RebindMask(di, hn::Lt(value, hn::Zero(df)));
    const VI code = hn::IfThenElse(negative, hn::Sub(hn::Set(di, kHalf - 1), place),
                                   hn::Add(hn::Set(di, kHalf), place));
    StoreLowBytes(code, codes + d);
    const size_t i = d / SixteenLanes::kLanes % (kTurnedSumLanes / SixteenLanes::kLanes);
    products.part[i] = hn::Add(products.part[i], hn::Mul(level, hn::Abs(value)));
    norms.part[i] = hn::Add(norms.part[i], hn::Mul(level, level));
  }
}

template <int kBits>
uint64_t QuantizeTurned(const float* rows, int num_rows, int dim, uint16_t* scales,
                        uint8_t* codes) {
  const DF df;
  uint64_t replaced = 0;
  for (int row = 0; row < num_rows; ++row, rows += dim, codes += dim) {
    SixteenLanes squares;
    for (size_t d = 0; d < static_cast<size_t>(dim); d += SixteenLanes::kLanes) {
      VF& sum = squares.part[d / SixteenLanes::kLanes % (kTurnedSumLanes / SixteenLanes::kLanes)];
      const VF value = hn::LoadU(df, rows + d);
      sum = hn::Add(sum, hn::Mul(value, value));
    }
    const float rms = std::sqrt(squares.Sum() / static_cast<float>(dim));
    const float factor = rms > 0.0f ? TurnedLevels<kBits>::kDeviation / rms : 0.0f;
    SixteenLanes products;
    SixteenLanes norms;
    QuantizeTurnedRow<kBits>(rows, static_cast<size_t>(dim), factor, codes, products, norms);
    scales[row] = TurnedScaleBits(products.Sum(), norms.Sum(), dim, &replaced);
  }
  return replaced;
}

const TurnedKernels& TurnedTable(const char* name) {
  static const TurnedKernels table = {
      .name = name,
      .key_scores = {TurnedKeyScores<2>, TurnedKeyScores<3>, TurnedKeyScores<4>},
      .add_values = {TurnedAddValues<2>, TurnedAddValues<3>, TurnedAddValues<4>},
      .prepare_query = PrepareTurnedQuery,
      .quantize = {QuantizeTurned<2>, QuantizeTurned<3>, QuantizeTurned<4>},
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const TurnedKernels*> SimdTurnedKernels() {
  VARVE_SIMD_TABLES(TurnedKernels, TurnedTable);
}

}  // namespace varve
#endif  // HWY_ONCE
