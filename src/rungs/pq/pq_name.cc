#include "rungs/pq/pq_name.h"

#include <charconv>
#include <system_error>

#include "kernels/pq_kernels.h"

namespace varve {
namespace {

// Decimal digits without a leading zero.
std::optional<int> ParseCount(std::string_view digits, int min, int max) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || rest != end || digits[0] == '0' || value < min || value > max)
    return std::nullopt;
  return value;
}

}  // namespace

std::optional<PqSize> ParsePqName(std::string_view name, int dim) {
  if (!name.starts_with("pq")) return std::nullopt;
  if (name == "pq4") return PqSize{dim / 2, 8};
  if (name == "pq3") return PqSize{dim / 2, 6};
  if (name == "pq2") return PqSize{dim / 2, 4};
  const size_t cross = name.find('x');
  if (cross == std::string_view::npos || cross == 2 || cross + 1 == name.size())
    return std::nullopt;
  const std::optional<int> subspaces = ParseCount(name.substr(2, cross - 2), 1, kMaxDim);
  const std::optional<int> bits = ParseCount(name.substr(cross + 1), kMinPqBits, kMaxPqBits);
  if (!subspaces || !bits) return std::nullopt;
  return PqSize{*subspaces, *bits};
}

std::string PqName(const PqSize& size) {
  return "pq" + std::to_string(size.subspaces) + "x" + std::to_string(size.bits);
}

}  // namespace varve
