// A number while its words are heard, in decimal digits of any length: "nine hundred decillion" is
// no more than a string.

#ifndef VARVE_RUNTIME_EVAL_SPOKEN_NUMBER_H_
#define VARVE_RUNTIME_EVAL_SPOKEN_NUMBER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

// Digits, or digits on both sides of a point.
bool IsDecimal(std::string_view word);

// A decimal number times a power of ten, without leading zeros; none if the text is no number or
// the product no integer.
std::optional<std::string> ScaledDecimal(std::string_view text, size_t zeros);

// An integer, which further words add to and multiply, or a text of digits and points, which they
// are put behind. The digits of an integer have no leading zeros.
struct SpokenNumber {
  std::string digits;
  bool is_text = false;

  bool is_zero() const { return !is_text && digits == "0"; }
  // What one to nineteen or twenty to ninety makes of it: "100" and "20" are 120, "105" and "20"
  // are the text 10520.
  SpokenNumber With(const std::string& small) const;
  // An integer whose last three digits are multiplied by a power of ten: 2005 hundred is 2500.
  SpokenNumber Times(size_t zeros) const;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_SPOKEN_NUMBER_H_
