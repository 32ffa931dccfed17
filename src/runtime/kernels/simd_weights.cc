// One table of weight kernels per Highway target, from one source; see simd_kernels.cc.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI: Ice Lake, Zen 4 and later

#include <vector>

#include "kernels/simd_table_list.h"
#include "runtime/kernels/weights_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd_weights.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "runtime/kernels/simd_weights-inl.h"
#include "runtime/kernels/simd_weights_low_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

const WeightKernels& WeightTable(const char* name) {
  using F32 = FloatRow<FloatType::kF32>;
  using F16 = FloatRow<FloatType::kF16>;
  using BF16 = FloatRow<FloatType::kBF16>;
  using Q8_0 = BlockRow<BlockQ8_0>;
  using Q4_0 = BlockRow<BlockQ4_0>;
  using Q4_1 = BlockRow<BlockQ4_1>;
  using Q5_0 = BlockRow<BlockQ5_0>;
  using Q5_1 = BlockRow<BlockQ5_1>;
  using Q4K = LargeBlockRow<BlockQ4K>;
  using Q5K = LargeBlockRow<BlockQ5K>;
  using Q6K = LargeBlockRow<BlockQ6K>;
  using Q2K = LargeBlockRow<BlockQ2K>;
  using Q3K = LargeBlockRow<BlockQ3K>;
  using IQ4NL = BlockRow<BlockIQ4NL>;
  using IQ4XS = LargeBlockRow<BlockIQ4XS>;
  static const WeightKernels table = {
      .name = name,
      .decode = {DecodeWeights<F32>, DecodeWeights<F16>, DecodeWeights<BF16>, DecodeWeights<Q8_0>,
                 DecodeWeights<Q4_0>, DecodeWeights<Q4_1>, DecodeWeights<Q5_0>, DecodeWeights<Q5_1>,
                 DecodeWeights<Q4K>, DecodeWeights<Q5K>, DecodeWeights<Q6K>, DecodeWeights<Q2K>,
                 DecodeWeights<Q3K>, DecodeWeights<IQ4NL>, DecodeWeights<IQ4XS>},
      .multiply_rows = {MultiplyWeights<F32>, MultiplyWeights<F16>, MultiplyWeights<BF16>},
      .rounded = nullptr,
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const WeightKernels*> SimdWeightKernels() {
  VARVE_SIMD_TABLES(WeightKernels, WeightTable);
}

}  // namespace varve
#endif  // HWY_ONCE
