// f16 and bf16 as bits, in portable C++: exact widening, narrowing with round to nearest even. NaN
// stays NaN, overflow becomes infinity. The vector versions in src/kernels are tested against this.
// constexpr, so that device code may call them.

#ifndef VARVE_BASE_HALF_H_
#define VARVE_BASE_HALF_H_

#include <bit>
#include <cstdint>

namespace varve {

constexpr float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    // Zero or subnormal: mantissa * 2^-24, exact in f32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr uint16_t F32ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: keep the top payload bits, make it quiet
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, let the f32 adder round
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;  // ulp of 0.5 is 2^-24
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

constexpr float BF16ToF32(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

constexpr uint16_t F32ToBF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline constexpr uint16_t kF16Infinity = 0x7C00;
inline constexpr uint16_t kBF16Infinity = 0x7F80;

// Whether a finite value has become infinite on its way to `narrow`. `narrow - 1` is then the
// largest value of its sign.
constexpr bool Overflowed(float f, uint16_t narrow, uint16_t infinity) {
  return (narrow & 0x7FFFu) == infinity && (std::bit_cast<uint32_t>(f) & 0x7FFFFFFFu) < 0x7F800000u;
}

}  // namespace varve

#endif  // VARVE_BASE_HALF_H_
