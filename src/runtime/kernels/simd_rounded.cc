// Products with activations as integers, one table per Highway target; see simd_kernels.cc. Apart
// from simd_weights.cc, so that both compile at once.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI: Ice Lake, Zen 4 and later

#include <vector>

#include "kernels/simd_table_list.h"
#include "runtime/kernels/weights_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd_rounded.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "runtime/kernels/simd_integers-inl.h"
#include "runtime/kernels/simd_weights_low_runs-inl.h"
#include "runtime/kernels/simd_weights_runs-inl.h"
#include "runtime/kernels/simd_weights_short-inl.h"
#include "runtime/kernels/simd_weights_woven-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

const RoundedKernels& RoundedTable(const char* name) {
  using Q8_0 = RoundedQ8_0;
  using Q4_0 = RoundedNibbles<false, false>;
  using Q4_1 = RoundedNibbles<true, false>;
  using Q5_0 = RoundedNibbles<false, true>;
  using Q5_1 = RoundedNibbles<true, true>;
  using Q4K = RunsQ45K<false>;
  using Q5K = RunsQ45K<true>;
  using Q6K = RunsQ6K;
  using Q2K = RunsQ2K;
  using Q3K = RunsQ3K;
  using IQ4NL = RoundedIQ4NL;
  using IQ4XS = RunsIQ4XS;
  static const RoundedKernels table = {
      .name = name,
      .round_input = RoundInput,
      .multiply_rounded = {nullptr, nullptr, nullptr, MultiplyShort<Q8_0>, MultiplyShort<Q4_0>,
                           MultiplyShort<Q4_1>, MultiplyShort<Q5_0>, MultiplyShort<Q5_1>,
                           MultiplyRuns<Q4K>, MultiplyRuns<Q5K>, MultiplyRuns<Q6K>,
                           MultiplyRuns<Q2K>, MultiplyRuns<Q3K>, MultiplyShort<IQ4NL>,
                           MultiplyRuns<IQ4XS>},
      .multiply_woven = {nullptr, nullptr, nullptr, nullptr, MultiplyWoven<WeightType::kQ4_0>,
                         MultiplyWoven<WeightType::kQ4_1>, MultiplyWoven<WeightType::kQ5_0>,
                         MultiplyWoven<WeightType::kQ5_1>, MultiplyWoven<WeightType::kQ4K>,
                         MultiplyWoven<WeightType::kQ5K>, MultiplyWoven<WeightType::kQ6K>, nullptr,
                         nullptr, MultiplyWoven<WeightType::kIQ4_NL>,
                         MultiplyWoven<WeightType::kIQ4_XS>},
      .decode_integers = {nullptr, nullptr, nullptr, DecodeShortIntegers<Q8_0>,
                          DecodeShortIntegers<Q4_0>, DecodeShortIntegers<Q4_1>,
                          DecodeShortIntegers<Q5_0>, DecodeShortIntegers<Q5_1>,
                          DecodeRunIntegers<Q4K>, DecodeRunIntegers<Q5K>, DecodeRunIntegers<Q6K>,
                          DecodeRunIntegers<Q2K>, DecodeRunIntegers<Q3K>,
                          DecodeShortIntegers<IQ4NL>, DecodeRunIntegers<IQ4XS>},
      .pack_inputs = PackInputs,
      .multiply_integers = MultiplyIntegers,
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const RoundedKernels*> SimdRoundedKernels() {
  VARVE_SIMD_TABLES(RoundedKernels, RoundedTable);
}

}  // namespace varve
#endif  // HWY_ONCE
