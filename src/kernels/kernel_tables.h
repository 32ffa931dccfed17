// Where the kernel tables of the instruction sets come from; private to src/kernels.

#ifndef VARVE_KERNELS_KERNEL_TABLES_H_
#define VARVE_KERNELS_KERNEL_TABLES_H_

#include <array>
#include <vector>

#include "kernels/kernels.h"

namespace varve {

const Kernels& ScalarKernels();

// The Highway tables that this machine can run, best last; empty where Highway has none.
std::vector<const Kernels*> SimdKernels();

// Levels of the weights in block V sums, by BlockType: 15 bits, so that a level fits an int16_t.
// 32512 = 127 * 256: with a sign, both bytes of a level stay in range.
inline constexpr float kWeightLevels[2] = {32767.0f, 32512.0f};

// Whether a row's weights in a page are rounded to multiples of 256 levels (see scalar_kernels.cc).
inline bool UseCoarseWeights(BlockType type, float weight_max, float weight_sum) {
  return type == BlockType::kQ4 && weight_max * 8.0f <= weight_sum;
}

// The dither that is added before coarse levels are rounded: the fraction of (token + 1) * golden
// ratio, less one half. In any run of tokens it is spread evenly over (-0.5, 0.5).
constexpr std::array<float, kMaxPageTokens> MakeDither() {
  std::array<float, kMaxPageTokens> dither{};
  for (int token = 0; token < kMaxPageTokens; ++token) {
    const double x = (token + 1) * 0.6180339887498949;
    dither[token] = static_cast<float>(x - static_cast<int>(x) - 0.5);
  }
  return dither;
}
alignas(64) inline constexpr std::array<float, kMaxPageTokens> kDither = MakeDither();

// Copies a block of 32 values with NaN replaced by 0 and the rest clamped to what an f16 scale can
// express; returns how many values changed.
uint64_t SanitizeBlock(BlockType type, const float* values, float* out);

}  // namespace varve

#endif  // VARVE_KERNELS_KERNEL_TABLES_H_
