// Names from files in messages: whatever their bytes are, one line of plain text.

#ifndef VARVE_BASE_PRINTABLE_NAME_H_
#define VARVE_BASE_PRINTABLE_NAME_H_

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace varve {

inline std::string PrintableName(std::string_view name) {
  constexpr size_t kMaxShown = 80;
  std::string shown;
  for (const char letter : name.substr(0, kMaxShown)) {
    const bool plain = letter >= ' ' && letter <= '~';
    shown += plain ? std::string(1, letter) : fmt::format("\\x{:02x}", letter & 0xFF);
  }
  return name.size() > kMaxShown ? shown + "…" : shown;
}

}  // namespace varve

#endif  // VARVE_BASE_PRINTABLE_NAME_H_
