#include "store/plane_coder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "store/float_bits.h"

namespace varve::store {
namespace {

// The first byte of bases that lie too far apart for half a byte each.
constexpr uint8_t kWideBases = 0xFF;
constexpr int kNarrowBases = 16;
// Bases of f16 are multiplied by 4 in a byte.
constexpr int kMaxF16Base = 63;

PairElement PlaneElementOf(const FloatPlane& plane) {
  return plane.bytes ? PairElement::kExponent : ElementOf(plane.lane);
}

size_t AllElements(const FloatPlane& plane) {
  return plane.elements() * static_cast<size_t>(plane.num_heads);
}

// How a ladder says every difference from the base, modulo 256.
struct PlaneCode {
  uint8_t levels = 0;                  // in which it has bits
  uint8_t code[kMaxPlaneLevels] = {};  // there
  bool patch = true;
  int bits = 0;  // that it takes, with the patch
};

std::array<PlaneCode, 256> MakeCodes(const PlaneLadder& ladder) {
  std::array<PlaneCode, 256> codes;
  PlaneCode begin;
  int value = 0;
  for (int l = 0; l < ladder.num_levels; ++l) {
    const PlaneLevel& level = ladder.levels[l];
    const int all = (1 << level.bits) - 1;
    value += level.enter;
    begin.levels = static_cast<uint8_t>(l + 1);
    begin.bits += level.bits;
    for (int code = 0; code <= all; ++code) {
      int sum = value;
      for (int b = 0; b < level.bits; ++b) sum += (code >> b & 1) * level.add[b];
      begin.code[l] = static_cast<uint8_t>(code);
      if (code == all) {
        value = sum;
        continue;
      }
      codes[static_cast<uint8_t>(sum)] = begin;
      codes[static_cast<uint8_t>(sum)].patch = false;
    }
  }
  begin.bits += 8;
  for (PlaneCode& code : codes) {
    if (code.patch) code = begin;
  }
  return codes;
}

const std::array<PlaneCode, 256>& CodesOf(PairElement element) {
  static const std::array<PlaneCode, 256> exponents = MakeCodes(kExponentLadder);
  static const std::array<PlaneCode, 256> misses = MakeCodes(kMissLadder);
  return element == PairElement::kExponent ? misses : exponents;
}

// Bits one after the other, lowest first.
class BitWriter {
 public:
  // Up to 64; those above `count` are 0.
  void Append(uint64_t bits, int count) {
    while (count > 0) {
      if (used_ % 8 == 0) bytes_.push_back(std::byte{0});
      const int room = 8 - static_cast<int>(used_ % 8), taken = std::min(room, count);
      bytes_.back() |= static_cast<std::byte>(bits << used_ % 8);
      bits >>= taken;
      count -= taken;
      used_ += static_cast<size_t>(taken);
    }
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  size_t used_ = 0;
};

// The streams of a part as they grow, block by block.
struct PlaneStreams {
  BitWriter levels[kMaxPlaneLevels - 1];
  std::vector<std::byte> blocks;
  std::vector<std::byte> patches;
};

// 64 elements; `codes` of each.
void AppendBlock(PairElement element, const PlaneCode* const* codes, const uint8_t* exponents,
                 std::span<const std::byte> raw, PlaneStreams& out) {
  const PlaneLadder& ladder = LadderOf(element);
  AppendBytes(out.blocks, raw);
  uint64_t planes[kMaxPlaneLevels][2] = {};
  int counts[kMaxPlaneLevels] = {};
  for (size_t i = 0; i < kPlaneElements; ++i) {
    for (int l = 0; l < codes[i]->levels; ++l) {
      const uint64_t code = codes[i]->code[l];
      planes[l][0] |= (code & 1) << counts[l];
      planes[l][1] |= (code >> 1) << counts[l];
      ++counts[l];
    }
  }
  for (int l = 0; l < ladder.num_levels; ++l) {
    for (int b = 0; b < ladder.levels[l].bits; ++b)
      l == 0 ? AppendNumber(out.blocks, planes[l][b])
             : out.levels[l - 1].Append(planes[l][b], counts[l]);
  }
  for (size_t i = 0; i < kPlaneElements; ++i) {
    if (codes[i]->patch) out.patches.push_back(static_cast<std::byte>(exponents[i]));
  }
}

}  // namespace

bool HasPlanes(const FloatPlane& plane) {
  return plane.num_heads > 0 && (plane.bytes || plane.lane != LaneType::kF32) &&
         varve::HasPlanes(plane.layout, plane.num_rows, plane.dim, plane.chunk);
}

std::vector<uint8_t> FitBases(const FloatPlane& plane, const SplitElements& split) {
  const std::array<PlaneCode, 256>& codes = CodesOf(PlaneElementOf(plane));
  const size_t dim = static_cast<size_t>(plane.dim), elements = plane.elements();
  std::vector<uint8_t> bases(dim * static_cast<size_t>(plane.num_heads));
  std::vector<std::array<uint32_t, 256>> counts(dim);
  for (size_t head = 0; head < static_cast<size_t>(plane.num_heads); ++head) {
    std::fill(counts.begin(), counts.end(), std::array<uint32_t, 256>{});
    const uint8_t* exponents = split.exponents.data() + head * elements;
    for (size_t i = 0; i < elements; ++i) {
      ++counts[PlaneChannel(plane.layout, plane.num_rows, plane.dim, plane.chunk, i)][exponents[i]];
    }
    for (size_t channel = 0; channel < dim; ++channel) {
      std::vector<std::pair<int, uint32_t>> seen;
      for (int e = 0; e < 256; ++e) {
        if (counts[channel][static_cast<size_t>(e)] > 0)
          seen.emplace_back(e, counts[channel][static_cast<size_t>(e)]);
      }
      // A base lies within the exponents, or one below the highest.
      uint64_t least = ~uint64_t{0};
      for (int base = seen.front().first; base <= seen.back().first; ++base) {
        uint64_t bits = 0;
        for (const auto& [e, count] : seen)
          bits +=
              uint64_t{count} * static_cast<uint64_t>(codes[static_cast<uint8_t>(e - base)].bits);
        if (bits >= least) continue;
        least = bits;
        bases[head * dim + channel] = static_cast<uint8_t>(base);
      }
    }
  }
  return bases;
}

void AppendBases(std::span<const uint8_t> bases, std::vector<std::byte>& out) {
  const auto [lowest, highest] = std::minmax_element(bases.begin(), bases.end());
  if (*highest - *lowest >= kNarrowBases || *lowest == kWideBases) {
    AppendNumber(out, kWideBases);
    AppendBytes(out, std::as_bytes(bases));
    return;
  }
  AppendNumber(out, *lowest);
  for (size_t i = 0; i < bases.size(); i += 2) {
    const int second = i + 1 < bases.size() ? bases[i + 1] - *lowest : 0;
    out.push_back(static_cast<std::byte>((bases[i] - *lowest) | second << 4));
  }
}

Status ReadBases(ByteReader& reader, const FloatPlane& plane, PlaneBases& buffer) {
  const size_t count = static_cast<size_t>(plane.num_heads) * static_cast<size_t>(plane.dim);
  uint8_t lowest = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("lowest_base", lowest));
  const bool wide = lowest == kWideBases;
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader.Take("bases", wide ? count : (count + 1) / 2, bytes));
  buffer.Resize(count);
  const std::span<uint8_t> bases = buffer.span();
  if (wide) {
    std::memcpy(bases.data(), bytes.data(), count);
  } else {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int both = static_cast<int>(bytes[i]);
      bases[2 * i] = static_cast<uint8_t>(lowest + (both & 15));
      if (2 * i + 1 < count) bases[2 * i + 1] = static_cast<uint8_t>(lowest + (both >> 4));
    }
  }
  if (!wide && count % 2 == 1 && static_cast<int>(bytes.back()) > 15)
    return reader.Bad("the half byte behind the last base is not 0");
  if (plane.lane != LaneType::kF16 || (!wide && lowest + kNarrowBases <= kMaxF16Base))
    return Status();
  const uint8_t highest = *std::max_element(bases.begin(), bases.end());
  if (highest <= kMaxF16Base) return Status();
  return reader.Bad(fmt::format("base {} > {}", highest, kMaxF16Base));
}

bool AppendPlaneStream(const FloatPlane& plane, const SplitElements& split,
                       std::span<const uint8_t> bases, size_t limit, std::vector<std::byte>& out) {
  const PairElement element = PlaneElementOf(plane);
  const std::array<PlaneCode, 256>& codes = CodesOf(element);
  const size_t raw_bytes = PairRawBlockBytes(element, kPlaneElements);
  const size_t dim = static_cast<size_t>(plane.dim), elements = plane.elements();
  PlaneStreams streams;
  std::array<const PlaneCode*, kPlaneElements> of;
  for (size_t first = 0; first < AllElements(plane); first += kPlaneElements) {
    const uint8_t* exponents = split.exponents.data() + first;
    for (size_t i = 0; i < kPlaneElements; ++i) {
      const size_t channel =
          first / elements * dim +
          PlaneChannel(plane.layout, plane.num_rows, plane.dim, plane.chunk, first % elements + i);
      const uint8_t base = plane.bytes ? kMissBase : bases[channel];
      of[i] = &codes[static_cast<uint8_t>(exponents[i] - base)];
    }
    const size_t raw_at = first / kPlaneElements * raw_bytes;
    AppendBlock(element, of.data(), exponents, std::span(split.raw).subspan(raw_at, raw_bytes),
                streams);
  }
  const size_t before = out.size();
  const int levels = LadderOf(element).num_levels - 1;
  for (int l = 0; l < levels; ++l)
    AppendNumber(out, static_cast<uint32_t>(streams.levels[l].bytes().size()));
  for (int l = 0; l < levels; ++l) AppendBytes(out, streams.levels[l].bytes());
  AppendBytes(out, streams.blocks);
  AppendBytes(out, streams.patches);
  if (out.size() - before <= limit) return true;
  out.resize(before);
  return false;
}

Status ReadPlaneStream(ByteReader& reader, const FloatPlane& plane, std::span<const uint8_t> bases,
                       std::byte* out, size_t head_stride) {
  if (!HasPlanes(plane)) return reader.Bad("a part of this shape has no planes");
  PlaneDecodeArgs args;
  args.element = PlaneElementOf(plane);
  const size_t levels = static_cast<size_t>(LadderOf(args.element).num_levels - 1);
  for (size_t l = 0; l < levels; ++l) {
    uint32_t bytes = 0;
    VARVE_RETURN_IF_ERROR(reader.Read("level_bytes", bytes));
    args.level_bytes[l] = bytes;
  }
  std::span<const std::byte> level[kMaxPlaneLevels - 1], blocks, patches;
  for (size_t l = 0; l < levels; ++l)
    VARVE_RETURN_IF_ERROR(reader.Take("level", args.level_bytes[l], level[l]));
  const size_t block_bytes = AllElements(plane) / kPlaneElements * PlaneBlockBytes(args.element);
  VARVE_RETURN_IF_ERROR(reader.Take("blocks", block_bytes, blocks));
  VARVE_RETURN_IF_ERROR(reader.Take("patches", reader.left(), patches));
  for (const std::byte patch : patches) {
    if (args.element == PairElement::kF16 && static_cast<int>(patch) > 31)
      return reader.Bad(fmt::format("patch {} > 31", static_cast<int>(patch)));
  }
  // A decoder may read past a level; mostly the blocks lie there.
  std::vector<std::byte> roomy;
  const bool copy = blocks.size() + patches.size() < kPlaneReadSlack;
  for (size_t l = 0; l < levels && copy; ++l) AppendBytes(roomy, level[l]);
  roomy.resize(roomy.size() + (copy ? kPlaneReadSlack : 0));
  size_t at = 0;
  for (size_t l = 0; l < levels; ++l) {
    args.levels[l] = reinterpret_cast<const uint8_t*>(copy ? roomy.data() + at : level[l].data());
    at += level[l].size();
  }
  args.layout = plane.layout;
  args.num_heads = plane.num_heads;
  args.num_rows = plane.num_rows;
  args.dim = plane.dim;
  args.chunk = plane.chunk;
  args.bases = plane.bytes ? nullptr : bases.data();
  args.blocks = reinterpret_cast<const uint8_t*>(blocks.data());
  args.patches = reinterpret_cast<const uint8_t*>(patches.data());
  args.num_patches = patches.size();
  args.out = out;
  args.head_stride = head_stride;
  if (!DecodePlanes(args)) return reader.Bad("the planes do not decode to the elements");
  return Status();
}

}  // namespace varve::store
