// Whole multiples: sizes and offsets rounded up or down. `value + multiple` must not overflow;
// whoever has a number out of a file checks it first.

#ifndef VARVE_BASE_ALIGN_H_
#define VARVE_BASE_ALIGN_H_

#include <type_traits>

namespace varve {

// How many pieces of `size` (> 0) hold `value` (>= 0).
template <typename T>
constexpr T CeilDiv(T value, std::type_identity_t<T> size) {
  static_assert(std::is_integral_v<T>);
  return (value + size - 1) / size;
}

// The least multiple of `multiple` (> 0, any number) that is at least `value` (>= 0).
template <typename T>
constexpr T AlignUp(T value, std::type_identity_t<T> multiple) {
  return CeilDiv(value, multiple) * multiple;
}

// The greatest multiple of `multiple` (> 0, any number) that is at most `value` (>= 0).
template <typename T>
constexpr T AlignDown(T value, std::type_identity_t<T> multiple) {
  static_assert(std::is_integral_v<T>);
  return value / multiple * multiple;
}

}  // namespace varve

#endif  // VARVE_BASE_ALIGN_H_
