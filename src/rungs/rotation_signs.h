// The signs of the randomised Hadamard rotation (rotation.h): part of the format, shared by CPU and
// GPU.

#ifndef VARVE_RUNGS_ROTATION_SIGNS_H_
#define VARVE_RUNGS_ROTATION_SIGNS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "kernels/kernels.h"

namespace varve {

// Bit d % 32 of word d / 32: channel d changes its sign.
constexpr std::array<uint32_t, kMaxDim / 32> MakeRotationSigns() {
  std::array<uint32_t, kMaxDim / 32> words{};
  for (uint32_t d = 0; d < kMaxDim; ++d) {
    words[d / 32] |= static_cast<uint32_t>(SplitMix64(d).Next() >> 63) << (d % 32);
  }
  return words;
}
inline constexpr std::array<uint32_t, kMaxDim / 32> kRotationSigns = MakeRotationSigns();

// Channels that one Hadamard transform mixes: the largest power of two that divides dim.
constexpr int RotationBlockOf(int dim) { return dim & -dim; }

}  // namespace varve

#endif  // VARVE_RUNGS_ROTATION_SIGNS_H_
