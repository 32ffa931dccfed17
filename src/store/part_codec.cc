#include "store/part_codec.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "store/gear_part.h"
#include "store/pack_modes.h"

namespace varve::store {
namespace {

constexpr const char* kWhat = "packed part";

// How many elements of a strip equal the one before them.
template <typename Word>
size_t CountRepeats(const std::byte* strip, size_t bytes) {
  size_t equal = 0;
  for (size_t i = sizeof(Word); i + sizeof(Word) <= bytes; i += sizeof(Word)) {
    Word a, b;
    std::memcpy(&a, strip + i - sizeof(Word), sizeof(Word));
    std::memcpy(&b, strip + i, sizeof(Word));
    equal += a == b ? 1 : 0;
  }
  return equal;
}

// Whether there are so many that zstd may find what pairs do not.
bool LooksRepetitive(const PartView& part) {
  const size_t strip = part.shape.StripBytes();
  const bool wide = part.shape.lane == LaneType::kF32;
  size_t equal = 0;
  for (int head = 0; head < part.shape.num_heads; ++head) {
    equal += wide ? CountRepeats<uint32_t>(part.Strip(head), strip)
                  : CountRepeats<uint16_t>(part.Strip(head), strip);
  }
  return equal * (wide ? 4 : 2) * 8 > part.shape.Bytes();
}

void AppendHeader(const PartView& part, uint64_t dictionary_hash, std::vector<std::byte>& out) {
  AppendNumber(out, static_cast<uint8_t>(PackMode::kRaw));
  AppendNumber(out, static_cast<uint8_t>(part.shape.lane));
  AppendNumber(out, static_cast<uint8_t>(part.shape.layout));
  AppendNumber(out, uint8_t{0});
  AppendNumber(out, static_cast<uint16_t>(part.shape.num_heads));
  AppendNumber(out, static_cast<uint16_t>(part.shape.num_rows));
  AppendNumber(out, static_cast<uint16_t>(part.shape.head_dim));
  AppendNumber(out, uint16_t{0});
  AppendNumber(out, uint32_t{0});  // payload_bytes
  AppendNumber(out, HashPart(part));
  AppendNumber(out, dictionary_hash);
}

// The payload of raw, which nobody has written yet, and the fields that are known last.
void FinishPart(const PartView& part, PackMode mode, std::vector<std::byte>& packed) {
  if (mode == PackMode::kRaw) {
    const size_t strip = part.shape.StripBytes();
    for (int head = 0; head < part.shape.num_heads; ++head) {
      AppendBytes(packed, std::span(part.Strip(head), strip));
    }
  }
  packed[0] = static_cast<std::byte>(mode);
  const uint32_t payload = static_cast<uint32_t>(packed.size() - kPackedHeaderBytes);
  std::memcpy(packed.data() + 12, &payload, sizeof(payload));
}

bool IsPackMode(uint8_t mode) {
  return (mode >= static_cast<uint8_t>(PackMode::kRaw) &&
          mode <= static_cast<uint8_t>(PackMode::kRotatedPlanes)) ||
         mode == static_cast<uint8_t>(PackMode::kGear);
}

}  // namespace

std::string_view PackModeName(PackMode mode) {
  switch (mode) {
    case PackMode::kRaw:
      return "raw";
    case PackMode::kPairs:
      return "pairs";
    case PackMode::kRowRefs:
      return "row_refs";
    case PackMode::kBlocks:
      return "blocks";
    case PackMode::kZstd:
      return "zstd";
    case PackMode::kRotatedRows:
      return "rotated_rows";
    case PackMode::kPlanes:
      return "planes";
    case PackMode::kRotatedPlanes:
      return "rotated_planes";
    case PackMode::kGear:
      return "gear";
  }
  return "unknown";
}

Result<std::vector<std::byte>> Pack(const PartView& part, const Dictionary* dictionary,
                                    PackGoal goal) {
  VARVE_RETURN_IF_ERROR(part.shape.Check());
  if (dictionary != nullptr && !dictionary->Serves(part.shape)) {
    return InvalidArgument("pack: the dictionary is for parts of another shape");
  }
  std::vector<std::byte> packed;
  AppendHeader(part, dictionary != nullptr ? dictionary->hash() : 0, packed);
  size_t limit = part.shape.Bytes() - 1;  // a result must be smaller than the part
  PackMode mode = PackMode::kRaw;
  std::vector<std::byte> candidate;
  const auto consider = [&](PackMode which, bool found) {
    if (!found) return;
    mode = which;
    packed.resize(kPackedHeaderBytes);
    AppendBytes(packed, candidate);
    limit = candidate.size() - 1;
    candidate.clear();
  };
  if (!IsFloat(part.shape.lane)) {
    consider(PackMode::kBlocks, AppendBlocks(part, dictionary, limit, candidate));
  } else {
    const bool rows = dictionary == nullptr || dictionary->num_rows() > 0;
    const bool quick = goal == PackGoal::kQuick;
    if (rows) consider(PackMode::kRowRefs, AppendRowRefs(part, dictionary, goal, limit, candidate));
    if (rows)
      consider(quick ? PackMode::kRotatedPlanes : PackMode::kRotatedRows,
               AppendRotatedRows(part, dictionary, goal, limit, candidate));
    // Rows that repeat exactly beat pairs and planes by far.
    if (quick && mode != PackMode::kRowRefs) {
      consider(PackMode::kPlanes, AppendPlanes(part, limit, candidate));
    }
    if (mode != PackMode::kRowRefs && (!quick || mode == PackMode::kRaw)) {
      consider(PackMode::kPairs, AppendPairs(part, dictionary, limit, candidate));
    }
  }
  if (PlaneOf(part.shape).num_heads == 0 || LooksRepetitive(part)) {
    consider(PackMode::kZstd, AppendZstd(part, limit, candidate));
  }
  FinishPart(part, mode, packed);
  // A part that does not use the dictionary must not name it.
  if (mode == PackMode::kRaw || mode == PackMode::kZstd || mode == PackMode::kPlanes) {
    std::fill_n(packed.begin() + 24, 8, std::byte{0});
  }
  packed.shrink_to_fit();
  return packed;
}

Result<std::vector<std::byte>> PackGear(const PartView& part, const GearPredictorSet& set) {
  VARVE_RETURN_IF_ERROR(part.shape.Check());
  if (set.predictors.empty()) return InvalidArgument("pack: 0 predictors");
  if (!IsFloat(part.shape.lane)) return Pack(part, nullptr);
  std::vector<std::byte> packed;
  AppendHeader(part, 0, packed);
  const bool is_smaller = AppendGear(part, set, part.shape.Bytes() - 1, packed);
  FinishPart(part, is_smaller ? PackMode::kGear : PackMode::kRaw, packed);
  packed.shrink_to_fit();
  return packed;
}

Result<PackedInfo> ReadPackedInfo(std::span<const std::byte> packed) {
  ByteReader reader(kWhat, packed);
  uint8_t mode = 0, lane = 0, layout = 0, reserved = 0;
  uint16_t heads = 0, rows = 0, dim = 0, reserved2 = 0;
  uint32_t payload = 0;
  PackedInfo info;
  VARVE_RETURN_IF_ERROR(reader.Read("mode", mode));
  VARVE_RETURN_IF_ERROR(reader.Read("lane type", lane));
  VARVE_RETURN_IF_ERROR(reader.Read("layout", layout));
  VARVE_RETURN_IF_ERROR(reader.Read("reserved", reserved));
  VARVE_RETURN_IF_ERROR(reader.Read("num_heads", heads));
  VARVE_RETURN_IF_ERROR(reader.Read("num_rows", rows));
  VARVE_RETURN_IF_ERROR(reader.Read("head_dim", dim));
  VARVE_RETURN_IF_ERROR(reader.Read("reserved", reserved2));
  VARVE_RETURN_IF_ERROR(reader.Read("payload_bytes", payload));
  VARVE_RETURN_IF_ERROR(reader.Read("content hash", info.content_hash));
  VARVE_RETURN_IF_ERROR(reader.Read("dictionary hash", info.dictionary_hash));
  if (!IsPackMode(mode)) return reader.Bad(fmt::format("mode {} is not in 16 … 23 or 32", mode));
  if (reserved != 0 || reserved2 != 0) {
    return reader.Bad(fmt::format("reserved bytes {} and {} are not 0", reserved, reserved2));
  }
  info.mode = static_cast<PackMode>(mode);
  info.shape = {static_cast<LaneType>(lane), static_cast<PartLayout>(layout), heads, rows, dim};
  const Status checked = info.shape.Check();
  if (!checked.ok()) return reader.Bad(checked.message());
  info.unpacked_bytes = info.shape.Bytes();
  info.packed_bytes = packed.size();
  if (payload != reader.left()) {
    return reader.Bad(fmt::format("payload_bytes {}, {} are there", payload, reader.left()));
  }
  if (info.mode == PackMode::kRaw && payload != info.unpacked_bytes) {
    return reader.Bad(
        fmt::format("payload_bytes {} of a raw part of {}", payload, info.unpacked_bytes));
  }
  return info;
}

Result<size_t> UnpackedSize(std::span<const std::byte> packed) {
  VARVE_ASSIGN_OR_RETURN(const PackedInfo info, ReadPackedInfo(packed));
  return info.unpacked_bytes;
}

Status Unpack(std::span<const std::byte> packed, const Dictionary* dictionary,
              const PartBuffer& out, const UnpackOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const PackedInfo info, ReadPackedInfo(packed));
  VARVE_RETURN_IF_ERROR(out.Check(info.shape));
  ByteReader reader(kWhat, packed.subspan(kPackedHeaderBytes));
  if (info.dictionary_hash == 0) {
    dictionary = nullptr;
  } else if (dictionary == nullptr) {
    return reader.Bad(fmt::format("needs dictionary {:016x}, none given", info.dictionary_hash));
  } else if (dictionary->hash() != info.dictionary_hash) {
    return reader.Bad(fmt::format("needs dictionary {:016x}, not {:016x}", info.dictionary_hash,
                                  dictionary->hash()));
  } else if (!dictionary->Serves(info.shape)) {
    return reader.Bad("its dictionary is for parts of another shape");
  }
  Status status;
  switch (info.mode) {
    case PackMode::kRaw:
      for (int head = 0; head < info.shape.num_heads && status.ok(); ++head) {
        std::span<const std::byte> strip;
        status = reader.Take("strip", info.shape.StripBytes(), strip);
        if (status.ok()) std::memcpy(out.Strip(info.shape, head), strip.data(), strip.size());
      }
      break;
    case PackMode::kPairs:
      status = ReadPairs(reader, info.shape, dictionary, out);
      break;
    case PackMode::kRowRefs:
      status = ReadRowRefs(reader, info.shape, dictionary, out);
      break;
    case PackMode::kBlocks:
      status = ReadBlocks(reader, info.shape, dictionary, out);
      break;
    case PackMode::kZstd:
      status = ReadZstd(reader, info.shape, out);
      break;
    case PackMode::kRotatedRows:
      status = ReadRotatedRows(reader, info.shape, dictionary, PackGoal::kSmall, out);
      break;
    case PackMode::kPlanes:
      status = ReadPlanes(reader, info.shape, out);
      break;
    case PackMode::kRotatedPlanes:
      status = ReadRotatedRows(reader, info.shape, dictionary, PackGoal::kQuick, out);
      break;
    case PackMode::kGear:
      status = ReadGear(reader, info.shape, out);
      break;
  }
  VARVE_RETURN_IF_ERROR(status);
  if (!options.verify) return Status();
  const uint64_t found = HashPart({info.shape, out.bytes.data(), out.head_stride});
  if (found == info.content_hash) return Status();
  return reader.Bad(
      fmt::format("content hash {:016x}, what came out has {:016x}", info.content_hash, found));
}

}  // namespace varve::store
