// Activations as 16-bit codes, for products with weights that are small integers themselves.
//
// The values of one token are cut into the blocks of the weights, of 32 or 256 values. A block is
// its largest magnitude / 32767 as an f32 scale, and the nearest integers to value / scale. A value
// is off by at most 1.5e-5 of its block's largest; a product of two such blocks is integer
// arithmetic up to its scales. Codes of 8 bits would be 256 times as coarse and no faster where
// memory is the limit.

#ifndef VARVE_RUNTIME_KERNELS_ROUNDED_INPUT_H_
#define VARVE_RUNTIME_KERNELS_ROUNDED_INPUT_H_

#include <cstdint>
#include <limits>

namespace varve {

inline constexpr int kRoundedRun = 32;      // values that share a sum
inline constexpr int kRoundedHalf = 16;     // values that share one of the half sums
inline constexpr int kRoundedMost = 32767;  // the largest code

// One token; a view.
struct RoundedInput {
  const int16_t* codes;      // [cols], -32767 … 32767
  const float* scales;       // [cols / block]
  const float* sums;         // [cols / 32]: of 32 codes, exact, for weights with an offset
  const int32_t* half_sums;  // [cols / 16]: of 16 codes, for woven rows and Q2_K; or null
};

struct RoundingStep {
  float scale;
  float inverse;  // 0: all codes are 0
};

// Of a block with this largest magnitude, for codes up to `most`. If the magnitude is NaN or
// infinite the whole block counts as NaN; below 2^-110, where the inverse would overflow, as zero.
inline RoundingStep StepOf(float largest, int most) {
  const float steps = static_cast<float>(most);
  if (largest < 0x1p-110f) return {0.0f, 0.0f};
  if (largest <= std::numeric_limits<float>::max()) return {largest / steps, steps / largest};
  return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
}

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_ROUNDED_INPUT_H_
