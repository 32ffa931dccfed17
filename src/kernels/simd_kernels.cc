// One table of kernels per Highway target, from one source. Compiled several times by
// foreach_target.h: what is specific to an instruction set is in simd_primitives-inl.h.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI: Ice Lake, Zen 4 and later

#include <limits>
#include <vector>

#include "kernels/kernel_tables.h"
#include "kernels/simd_table_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Highway's own scalar target would repeat scalar_kernels.cc, and vectors without a fixed size
// (SVE, RVV) cannot be kept in the arrays used here: machines with only those run "scalar".
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "kernels/simd_block_keys-inl.h"
#include "kernels/simd_block_values-inl.h"
#include "kernels/simd_dense-inl.h"
#include "kernels/simd_encode-inl.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

const Kernels& Table(const char* name) {
  static const Kernels table = {
      .name = name,
      .key_scores_float = {KeyScoresFloat<FloatType::kF32>, KeyScoresFloat<FloatType::kF16>,
                           KeyScoresFloat<FloatType::kBF16>},
      .add_values_float = {AddValuesFloat<FloatType::kF32>, AddValuesFloat<FloatType::kF16>,
                           AddValuesFloat<FloatType::kBF16>},
      .key_scores_block = {KeyScoresBlock<BlockType::kQ8>, KeyScoresBlock<BlockType::kQ4>},
      .add_values_block = {AddValuesBlock<BlockType::kQ8>, AddValuesBlock<BlockType::kQ4>},
      .softmax = Softmax,
      .prepare_block_query = PrepareBlockQuery,
      .quantize_blocks = {QuantizeBlocks<BlockType::kQ8>, QuantizeBlocks<BlockType::kQ4>},
      .narrow_f16 = NarrowF16,
      .narrow_bf16 = ScalarKernels().narrow_bf16,
      .widen_f16 = WidenF16,
      .widen_bf16 = ScalarKernels().widen_bf16,
      .hadamard = Hadamard,
      .page_mass = PageMass,
      .merge_sums = MergeSums,
      .add_scaled = AddScaled,
      .multiply_dense = MultiplyDense,
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const Kernels*> SimdKernels() { VARVE_SIMD_TABLES(Kernels, Table); }

}  // namespace varve
#endif  // HWY_ONCE
