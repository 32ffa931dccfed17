// The order of a compressor's blocks: as lists of names, as a clause of a plan, as metadata.

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fold/compressor_format.h"

namespace varve {
namespace {

constexpr std::string_view kPartPrefix = "compress_";
// What metadata of ours begins with.
constexpr std::string_view kMetadataMark = "varve: ";

// Its number among the parts, or kCompressorParts. "tk" is short for "compress_tk".
size_t FindPart(std::string_view name) {
  for (size_t i = 0; i < kCompressorParts; ++i) {
    const std::string_view full = CompressorPartName(static_cast<CompressorPart>(i));
    if (name == full || name == full.substr(kPartPrefix.size())) return i;
  }
  return kCompressorParts;
}

Status ReadParts(std::string_view text, const std::vector<std::string_view>& names,
                 CompressorOrder& order) {
  std::vector<CompressorPart> parts;
  for (const std::string_view name : names) {
    const size_t found = FindPart(name);
    if (found == kCompressorParts) {
      return InvalidArgument(fmt::format(
          "prefix order \"{}\": \"{}\" is not one of compress_tk compress_tv compress_ik "
          "compress_iv",
          text, name));
    }
    const auto part = static_cast<CompressorPart>(found);
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) {
      return InvalidArgument(fmt::format("prefix order \"{}\": \"{}\" comes twice", text, name));
    }
    parts.push_back(part);
  }
  for (const CompressorPart part : CompressorOrder().parts) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  std::copy(parts.begin(), parts.end(), order.parts.begin());
  return Status();
}

// The number that a text is from its first letter to its last, or -1.
int NumberOf(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// The names in the order in which a network computes them.
Result<std::vector<std::string_view>> SortSlots(std::string_view text,
                                                std::vector<std::string_view> names) {
  if (names.empty() || names.size() > kMaxCompressorSlots) {
    return InvalidArgument(fmt::format("slot order \"{}\" has {} slots, not 1 … {}", text,
                                       names.size(), kMaxCompressorSlots));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i].find('.') != std::string_view::npos) {
      return InvalidArgument(
          fmt::format("slot order \"{}\": \"{}\" is no name of a slot", text, names[i]));
    }
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<ptrdiff_t>(i)) {
      return InvalidArgument(fmt::format("slot order \"{}\": \"{}\" comes twice", text, names[i]));
    }
  }
  const auto is_number = [](std::string_view name) { return NumberOf(name) >= 0; };
  if (std::all_of(names.begin(), names.end(), is_number)) {
    std::sort(names.begin(), names.end(),
              [](std::string_view a, std::string_view b) { return NumberOf(a) < NumberOf(b); });
  }
  return names;
}

Status ReadSlots(std::string_view text, const std::vector<std::string_view>& names,
                 CompressorOrder& order) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::string_view> sorted, SortSlots(text, names));
  order.slots.clear();
  for (const std::string_view name : names) {
    const auto at = std::find(sorted.begin(), sorted.end(), name);
    order.slots.push_back(static_cast<int>(at - sorted.begin()));
  }
  return Status();
}

Result<CompressorOrder> ParseOrder(std::string_view parts, std::string_view slots, char separator) {
  CompressorOrder order;
  if (!parts.empty()) VARVE_RETURN_IF_ERROR(ReadParts(parts, SplitList(parts, separator), order));
  if (!slots.empty()) VARVE_RETURN_IF_ERROR(ReadSlots(slots, SplitList(slots, separator), order));
  return order;
}

}  // namespace

std::vector<std::string_view> SplitList(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

Status CheckCompressorOrder(const CompressorOrder& order) {
  for (size_t i = 0; i < kCompressorParts; ++i) {
    const auto part = static_cast<CompressorPart>(i);
    if (std::count(order.parts.begin(), order.parts.end(), part) != 1) {
      return InvalidArgument(
          fmt::format("order: {} does not come once among the parts", CompressorPartName(part)));
    }
  }
  if (order.slots.empty() || order.slots.size() > kMaxCompressorSlots) {
    return InvalidArgument(
        fmt::format("order: {} slots, not 1 … {}", order.slots.size(), kMaxCompressorSlots));
  }
  for (int slot = 0; slot < static_cast<int>(order.slots.size()); ++slot) {
    if (std::count(order.slots.begin(), order.slots.end(), slot) != 1) {
      return InvalidArgument(fmt::format("order: slot {} does not come once among the slots",
                                         kCompressorSlotNumbers[static_cast<size_t>(slot)]));
    }
  }
  return Status();
}

Result<CompressorOrder> ParseCompressorOrder(std::string_view parts, std::string_view slots) {
  return ParseOrder(parts, slots, ',');
}

Result<std::vector<std::string>> ParseSlotNames(std::string_view slots) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::string_view> sorted,
                         SortSlots(slots, SplitList(slots)));
  return std::vector<std::string>(sorted.begin(), sorted.end());
}

Result<CompressorOrder> ParseCompressorOrder(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  return ParseOrder(text.substr(0, colon), text.substr(std::min(colon + 1, text.size())), '/');
}

Result<std::optional<CompressorOrder>> ParseCompressorMetadata(std::string_view metadata) {
  if (!metadata.starts_with(kMetadataMark)) return std::optional<CompressorOrder>();
  std::string_view parts, slots;
  for (const std::string_view word : SplitList(metadata.substr(kMetadataMark.size()), ' ')) {
    if (word.starts_with("parts=")) parts = word.substr(6);
    if (word.starts_with("slots=")) slots = word.substr(6);
  }
  VARVE_ASSIGN_OR_RETURN(CompressorOrder order, ParseOrder(parts, slots, ','));
  return std::optional<CompressorOrder>(std::move(order));
}

std::string PrintCompressorMetadata(const CompressorOrder& order) {
  std::vector<std::string_view> parts;
  std::vector<int> slots;
  for (const CompressorPart part : order.parts)
    parts.push_back(std::string_view(CompressorPartName(part)).substr(kPartPrefix.size()));
  for (const int slot : order.slots)
    slots.push_back(kCompressorSlotNumbers[static_cast<size_t>(slot)]);
  return fmt::format("{}parts={} slots={}", kMetadataMark, fmt::join(parts, ","),
                     fmt::join(slots, ","));
}

}  // namespace varve
