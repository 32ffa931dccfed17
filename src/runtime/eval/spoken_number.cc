#include "runtime/eval/spoken_number.h"

#include <algorithm>

namespace varve {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string WithoutLeadingZeros(std::string_view digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == std::string_view::npos ? "0" : std::string(digits.substr(first));
}

std::string Sum(const std::string& a, const std::string& b) {
  std::string reversed;
  int carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry > 0; ++i) {
    if (i < a.size()) carry += a[a.size() - 1 - i] - '0';
    if (i < b.size()) carry += b[b.size() - 1 - i] - '0';
    reversed += static_cast<char>('0' + carry % 10);
    carry /= 10;
  }
  return WithoutLeadingZeros(std::string(reversed.rbegin(), reversed.rend()));
}

// Whether the last `count` digits of an integer are zeros.
bool EndsWithZeros(const std::string& digits, size_t count) {
  if (digits == "0") return true;
  return digits.size() > count &&
         digits.find_first_not_of('0', digits.size() - count) == std::string::npos;
}

}  // namespace

bool IsDecimal(std::string_view word) {
  const size_t point = word.find('.');
  const std::string_view whole = word.substr(0, point);
  const std::string_view rest = point == std::string_view::npos ? "0" : word.substr(point + 1);
  return !whole.empty() && !rest.empty() && std::all_of(whole.begin(), whole.end(), IsDigit) &&
         std::all_of(rest.begin(), rest.end(), IsDigit);
}

std::optional<std::string> ScaledDecimal(std::string_view text, size_t zeros) {
  const size_t point = std::min(text.find('.'), text.size());
  std::string_view rest = text.substr(std::min(point + 1, text.size()));
  std::string digits(text.substr(0, point));
  if (digits.empty() && rest.empty()) return std::nullopt;
  while (!rest.empty() && rest.back() == '0') rest.remove_suffix(1);
  digits += rest;
  if (!std::all_of(digits.begin(), digits.end(), IsDigit) || rest.size() > zeros) {
    return std::nullopt;
  }
  return WithoutLeadingZeros(digits + std::string(zeros - rest.size(), '0'));
}

SpokenNumber SpokenNumber::With(const std::string& small) const {
  if (is_text || !EndsWithZeros(digits, small.size())) return {digits + small, true};
  if (digits == "0") return {small};
  return {digits.substr(0, digits.size() - small.size()) + small};
}

SpokenNumber SpokenNumber::Times(size_t zeros) const {
  const size_t below = std::min<size_t>(digits.size(), 3);
  const std::string before = digits.substr(0, digits.size() - below) + std::string(below, '0');
  const std::string residual = digits.substr(digits.size() - below) + std::string(zeros, '0');
  return {Sum(before, residual)};
}

}  // namespace varve
