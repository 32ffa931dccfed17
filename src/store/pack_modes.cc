#include "store/pack_modes.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "store/exponent_coder.h"
#include "store/float_bits.h"
#include "store/plane_coder.h"
#include "store/zstd_bytes.h"

namespace varve::store {
namespace {

size_t StrideOf(const PartView& part) {
  return part.head_stride != 0 ? part.head_stride : part.shape.StripBytes();
}

size_t StrideOf(const PartShape& shape, const PartBuffer& out) {
  return out.head_stride != 0 ? out.head_stride : shape.StripBytes();
}

// Where the codes of a part's units are: `has_units` of the payload.
enum class UnitSource : uint8_t { kDictionary = 0, kPart = 1, kChanged = 2 };
// Added to it if the states of the stream hold raw bits.
constexpr uint8_t kFilledStates = 4;

// Chooses the codes of a part's units, and writes what the reader must know of them, then the
// stream. If that takes more than `limit` bytes, returns false with `out` as it was.
bool AppendUnitsAndStream(const PartView& part, const FloatPlane& plane,
                          const Dictionary* dictionary, size_t limit, std::vector<std::byte>& out) {
  const size_t repeat = UnitRepeat(part.shape);
  const size_t before = out.size();
  const uint8_t filled = MayFillStates(plane) ? kFilledStates : 0;
  const SplitElements split = SplitPlane(plane, part.data, StrideOf(part));
  std::vector<UnitCode> units;
  if (dictionary == nullptr) {
    UnitFitter fitter(plane, repeat);
    fitter.Add(plane, part.data, StrideOf(part), repeat);
    units = fitter.Fit(0);
    AppendNumber(out, static_cast<uint8_t>(static_cast<uint8_t>(UnitSource::kPart) + filled));
    AppendUnits(plane.layout, units, out);
  } else {
    units = CollectUnits(plane.lane, dictionary->units(plane.layout));
    std::vector<uint16_t> changed;
    if (IsFloat(part.shape.lane)) changed = AdaptUnits(plane, split, units);
    const bool none = changed.empty();
    const UnitSource source = none ? UnitSource::kDictionary : UnitSource::kChanged;
    AppendNumber(out, static_cast<uint8_t>(static_cast<uint8_t>(source) + filled));
    if (!none) AppendChangedUnits(plane.layout, changed, units, out);
  }
  if (repeat > 1) {
    units = CollectUnits(plane.lane, RepeatUnits(ExpandUnits(plane.lane, units), repeat));
  }
  const size_t used = out.size() - before;
  if (used < limit && AppendPairStream(plane, split, units, limit - used, out)) return true;
  out.resize(before);
  return false;
}

Status ReadUnitSource(ByteReader& reader, const PartShape& shape, const FloatPlane& plane,
                      const Dictionary* dictionary, DecodeUnits& units, bool& filled) {
  if (plane.num_heads == 0) return reader.Bad("a part of this shape has no pairs");
  uint8_t has_units = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("has_units", has_units));
  if (has_units > 6 || has_units == 3) {
    return reader.Bad(fmt::format("has_units {} is not 0 … 2 or 4 … 6", has_units));
  }
  filled = (has_units & kFilledStates) != 0;
  has_units &= kFilledStates - 1;
  const UnitSource source = static_cast<UnitSource>(has_units);
  if (source != UnitSource::kPart && dictionary == nullptr) {
    return reader.Bad(fmt::format("has_units {} without a dictionary", has_units));
  }
  const size_t repeat = UnitRepeat(shape);
  if (source == UnitSource::kPart) {
    std::vector<UnitCode> codes;
    VARVE_RETURN_IF_ERROR(ReadUnits(reader, plane, plane.units() / repeat, codes));
    units = ExpandUnits(plane.lane, codes);
  } else {
    units = dictionary->units(plane.layout);
  }
  if (source == UnitSource::kChanged) {
    VARVE_RETURN_IF_ERROR(ReadChangedUnits(reader, plane, units));
  }
  if (repeat > 1) units = RepeatUnits(units, repeat);
  return Status();
}

}  // namespace

bool AppendPairs(const PartView& part, const Dictionary* dictionary, size_t limit,
                 std::vector<std::byte>& out) {
  const FloatPlane plane = PlaneOf(part.shape);
  if (plane.num_heads == 0) return false;
  return AppendUnitsAndStream(part, plane, dictionary, limit, out);
}

Status ReadPairs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                 const PartBuffer& out) {
  if (!IsFloat(shape.lane)) return reader.Bad("mode pairs with blocks");
  const FloatPlane plane = PlaneOf(shape);
  DecodeUnits units;
  bool filled = false;
  VARVE_RETURN_IF_ERROR(ReadUnitSource(reader, shape, plane, dictionary, units, filled));
  return ReadPairStream(reader, plane, units, filled, out.bytes.data(), StrideOf(shape, out));
}

bool AppendPlanes(const PartView& part, size_t limit, std::vector<std::byte>& out) {
  const FloatPlane plane = PlaneOf(part.shape);
  if (!IsFloat(part.shape.lane) || !HasPlanes(plane)) return false;
  const size_t before = out.size();
  const SplitElements split = SplitPlane(plane, part.data, StrideOf(part));
  const std::vector<uint8_t> bases = FitBases(plane, split);
  AppendBases(bases, out);
  const size_t used = out.size() - before;
  if (used < limit && AppendPlaneStream(plane, split, bases, limit - used, out)) return true;
  out.resize(before);
  return false;
}

Status ReadPlanes(ByteReader& reader, const PartShape& shape, const PartBuffer& out) {
  if (!IsFloat(shape.lane)) return reader.Bad("mode planes with blocks");
  const FloatPlane plane = PlaneOf(shape);
  PlaneBases bases;
  VARVE_RETURN_IF_ERROR(ReadBases(reader, plane, bases));
  return ReadPlaneStream(reader, plane, bases.span(), out.bytes.data(), StrideOf(shape, out));
}

bool AppendBlocks(const PartView& part, const Dictionary* dictionary, size_t limit,
                  std::vector<std::byte>& out) {
  const FloatPlane plane = PlaneOf(part.shape);
  if (plane.num_heads == 0) return false;
  const size_t before = out.size();
  const size_t scale_bytes = 2 * plane.elements();
  const size_t code_bytes = part.shape.StripBytes() - scale_bytes;
  std::vector<std::byte> codes;
  for (int head = 0; head < part.shape.num_heads; ++head) {
    AppendBytes(codes, std::span(part.Strip(head) + scale_bytes, code_bytes));
  }
  const std::vector<std::byte> frame = CompressZstd(codes);
  const bool zstd = !frame.empty() && frame.size() < codes.size();
  AppendNumber(out, static_cast<uint8_t>(zstd ? 1 : 0));
  AppendNumber(out, static_cast<uint32_t>(zstd ? frame.size() : codes.size()));
  AppendBytes(out, zstd ? frame : codes);
  const size_t used = out.size() - before;
  if (used < limit && AppendUnitsAndStream(part, plane, dictionary, limit - used, out)) {
    return true;
  }
  out.resize(before);
  return false;
}

Status ReadBlocks(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                  const PartBuffer& out) {
  if (IsFloat(shape.lane)) return reader.Bad("mode blocks with floats");
  const FloatPlane plane = PlaneOf(shape);
  const size_t scale_bytes = 2 * plane.elements();
  const size_t code_bytes = shape.StripBytes() - scale_bytes;
  const size_t all_codes = code_bytes * static_cast<size_t>(shape.num_heads);
  uint8_t zstd = 0;
  uint32_t stored = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("codes_zstd", zstd));
  VARVE_RETURN_IF_ERROR(reader.Read("codes_bytes", stored));
  if (zstd > 1) return reader.Bad(fmt::format("codes_zstd {} > 1", zstd));
  if (zstd == 0 && stored != all_codes) {
    return reader.Bad(fmt::format("codes_bytes {} is not {}", stored, all_codes));
  }
  std::span<const std::byte> codes;
  VARVE_RETURN_IF_ERROR(reader.Take("codes", stored, codes));
  std::vector<std::byte> inflated;
  if (zstd == 1) {
    inflated.resize(all_codes);
    VARVE_RETURN_IF_ERROR(DecompressZstd("packed part: codes", codes, inflated));
    codes = inflated;
  }
  DecodeUnits units;
  bool filled = false;
  VARVE_RETURN_IF_ERROR(ReadUnitSource(reader, shape, plane, dictionary, units, filled));
  VARVE_RETURN_IF_ERROR(
      ReadPairStream(reader, plane, units, filled, out.bytes.data(), StrideOf(shape, out)));
  for (int head = 0; head < shape.num_heads; ++head) {
    std::memcpy(out.Strip(shape, head) + scale_bytes,
                codes.data() + static_cast<size_t>(head) * code_bytes, code_bytes);
  }
  return Status();
}

// Floats: all first bytes of the elements, all second bytes, … Blocks: as they are.
bool AppendZstd(const PartView& part, size_t limit, std::vector<std::byte>& out) {
  const size_t width = IsFloat(part.shape.lane) ? LaneBytes(part.shape.lane) : 1;
  const size_t strip = part.shape.StripBytes();
  const size_t elements = part.shape.Bytes() / width;
  std::vector<std::byte> split(part.shape.Bytes());
  for (int head = 0; head < part.shape.num_heads; ++head) {
    const std::byte* from = part.Strip(head);
    for (size_t i = 0; i < strip; ++i) {
      split[i % width * elements + static_cast<size_t>(head) * (strip / width) + i / width] =
          from[i];
    }
  }
  const std::vector<std::byte> frame = CompressZstd(split);
  if (frame.empty() || frame.size() > limit) return false;
  AppendBytes(out, frame);
  return true;
}

Status ReadZstd(ByteReader& reader, const PartShape& shape, const PartBuffer& out) {
  const size_t width = IsFloat(shape.lane) ? LaneBytes(shape.lane) : 1;
  const size_t strip = shape.StripBytes();
  const size_t elements = shape.Bytes() / width;
  std::span<const std::byte> frame;
  VARVE_RETURN_IF_ERROR(reader.Take("frame", reader.left(), frame));
  std::vector<std::byte> split(shape.Bytes());
  VARVE_RETURN_IF_ERROR(DecompressZstd("packed part", frame, split));
  for (int head = 0; head < shape.num_heads; ++head) {
    std::byte* to = out.Strip(shape, head);
    for (size_t i = 0; i < strip; ++i) {
      to[i] = split[i % width * elements + static_cast<size_t>(head) * (strip / width) + i / width];
    }
  }
  return Status();
}

}  // namespace varve::store
