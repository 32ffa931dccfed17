// Single numbers of a compressor in its dtype. For those who make or look at compressors; networks
// decode whole matrices (fold_network.h).

#ifndef VARVE_FOLD_COMPRESSOR_NUMBERS_H_
#define VARVE_FOLD_COMPRESSOR_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "varve/compressor.h"

namespace varve {

// `value` rounded to nearest as the dtype stores it.
inline float RoundToDtype(CompressorDtype dtype, float value) {
  if (dtype == CompressorDtype::kF16) return F16ToF32(F32ToF16(value));
  return dtype == CompressorDtype::kBF16 ? BF16ToF32(F32ToBF16(value)) : value;
}

// Weight `at` of a matrix, row-major.
inline void StoreWeight(CompressorDtype dtype, float value, CompressorLinear& linear, size_t at) {
  std::byte* to = linear.weights.data() + at * CompressorDtypeBytes(dtype);
  if (dtype == CompressorDtype::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t half = dtype == CompressorDtype::kF16 ? F32ToF16(value) : F32ToBF16(value);
  std::memcpy(to, &half, sizeof(half));
}

inline float LoadWeight(CompressorDtype dtype, const CompressorLinear& linear, size_t at) {
  const std::byte* from = linear.weights.data() + at * CompressorDtypeBytes(dtype);
  if (dtype == CompressorDtype::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, from, sizeof(half));
  return dtype == CompressorDtype::kF16 ? F16ToF32(half) : BF16ToF32(half);
}

}  // namespace varve

#endif  // VARVE_FOLD_COMPRESSOR_NUMBERS_H_
