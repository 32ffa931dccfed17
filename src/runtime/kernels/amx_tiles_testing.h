// What tests of products in bf16 share: the kernels that this processor can run, and rounding.

#ifndef VARVE_RUNTIME_KERNELS_AMX_TILES_TESTING_H_
#define VARVE_RUNTIME_KERNELS_AMX_TILES_TESTING_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/kernels/amx_tiles.h"
#include "tests/emulated_amx.h"

namespace varve {

inline constexpr char kNoAmxKernels[] = "this machine has neither AMX-BF16 nor AVX512-BF16";

// Those of the program, or with emulated tiles where there is no AMX; null where neither runs.
inline const AmxKernels* AmxKernelsForTests() {
  const AmxKernels* amx = FindAmxKernels();
  return amx != nullptr ? amx : FindEmulatedAmxKernels();
}

// To the nearest, ties to even.
inline float RoundToBf16(float value) {
  if (std::isnan(value)) return value;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

inline std::vector<float> RoundedToBf16(std::vector<float> values) {
  for (float& value : values) value = RoundToBf16(value);
  return values;
}

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_AMX_TILES_TESTING_H_
