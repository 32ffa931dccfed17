#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "fold/compressor_format.h"

namespace varve {
namespace {

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    pieces.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pieces;
}

// Its number among the parts, or kCompressorParts. "tk" is short for "compress_tk".
size_t FindPart(std::string_view name) {
  constexpr std::string_view kPrefix = "compress_";
  for (size_t i = 0; i < kCompressorParts; ++i) {
    const std::string_view full = CompressorPartName(static_cast<CompressorPart>(i));
    if (name == full || name == full.substr(kPrefix.size())) return i;
  }
  return kCompressorParts;
}

Status ReadParts(std::string_view text, CompressorOrder& order) {
  std::vector<CompressorPart> parts;
  for (const std::string_view name : Split(text)) {
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

Status ReadSlots(std::string_view text, CompressorOrder& order) {
  std::vector<int> slots;
  for (const std::string_view name : Split(text)) {
    size_t slot = 0;
    while (slot < kCompressorSlots && name != std::to_string(kCompressorSlotNumbers[slot])) ++slot;
    if (slot == kCompressorSlots) {
      return InvalidArgument(
          fmt::format("slot order \"{}\": \"{}\" is not one of 0 3 6", text, name));
    }
    slots.push_back(static_cast<int>(slot));
  }
  if (slots.size() != kCompressorSlots) {
    return InvalidArgument(fmt::format("slot order \"{}\" has {} slots, not {}", text, slots.size(),
                                       kCompressorSlots));
  }
  std::copy(slots.begin(), slots.end(), order.slots.begin());
  return Status();
}

}  // namespace

Status CheckCompressorOrder(const CompressorOrder& order) {
  for (size_t i = 0; i < kCompressorParts; ++i) {
    const auto part = static_cast<CompressorPart>(i);
    if (std::count(order.parts.begin(), order.parts.end(), part) != 1) {
      return InvalidArgument(
          fmt::format("order: {} does not come once among the parts", CompressorPartName(part)));
    }
  }
  for (int slot = 0; slot < kCompressorSlots; ++slot) {
    if (std::count(order.slots.begin(), order.slots.end(), slot) != 1) {
      return InvalidArgument(fmt::format("order: slot {} does not come once among the slots",
                                         kCompressorSlotNumbers[static_cast<size_t>(slot)]));
    }
  }
  return Status();
}

Result<CompressorOrder> ParseCompressorOrder(std::string_view parts, std::string_view slots) {
  CompressorOrder order;
  if (!parts.empty()) VARVE_RETURN_IF_ERROR(ReadParts(parts, order));
  if (!slots.empty()) VARVE_RETURN_IF_ERROR(ReadSlots(slots, order));
  VARVE_RETURN_IF_ERROR(CheckCompressorOrder(order));
  return order;
}

}  // namespace varve
