#include "base/pinned_name.h"

#include <charconv>

#include <fmt/format.h>

#include "base/quoted.h"

namespace varve {
namespace {

constexpr std::string_view kKind = "xxh3:";
constexpr size_t kDigits = 16;

}  // namespace

std::string HashText(uint64_t hash) { return fmt::format("{}{:016x}", kKind, hash); }

Result<uint64_t> ParseHash(std::string_view text) {
  const auto bad = [text] {
    return InvalidArgument(
        fmt::format("hash {} is not \"{}\" and {} hexadecimal digits, as `varve inspect` prints it",
                    Quoted(text), kKind, kDigits));
  };
  if (!text.starts_with(kKind) || text.size() != kKind.size() + kDigits) return bad();
  const char* end = text.data() + text.size();
  uint64_t hash = 0;
  const auto [stopped, error] = std::from_chars(text.data() + kKind.size(), end, hash, 16);
  if (error != std::errc() || stopped != end) return bad();
  return hash;
}

Status PinnedName::Check(uint64_t found) const {
  if (!hash || *hash == found) return Status();
  return DataLoss(fmt::format("{}: its hash is {}, not {} as was asked for", name, HashText(found),
                              HashText(*hash)));
}

Result<PinnedName> ParsePinnedName(std::string_view text) {
  const size_t mark = text.rfind("#xxh3:");
  if (mark == std::string_view::npos) return PinnedName{std::string(text), std::nullopt};
  VARVE_ASSIGN_OR_RETURN(const uint64_t hash, ParseHash(text.substr(mark + 1)));
  return PinnedName{std::string(text.substr(0, mark)), hash};
}

}  // namespace varve
