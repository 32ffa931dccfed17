#include "cli/byte_size.h"

#include <cctype>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace varve::cli {

Result<int64_t> ParseByteSize(std::string_view option, const std::string& text) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
  const Status refused = InvalidArgument(fmt::format(
      "{} \"{}\": not a size in bytes up to 1PiB, such as 0, 4096 or 64MiB", option, text));
  // CLI11 alone would take "-5" for a size near 2^64.
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return refused;
  uint64_t value = 0;
  try {
    std::string bytes = text;
    if (!CLI::AsSizeValue(false)(bytes).empty()) return refused;
    value = std::stoull(bytes);
  } catch (const std::exception&) {  // an unknown unit, too many digits
    return refused;
  }
  if (value > kMaxBytes) return refused;
  return static_cast<int64_t>(value);
}

}  // namespace varve::cli
