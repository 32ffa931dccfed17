#include "store/exponent_coder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/kernels.h"
#include "store/exponent_tables.h"
#include "store/float_bits.h"

namespace varve::store {
namespace {

constexpr size_t kStateBytes = kPairLanes * sizeof(uint32_t);
// Raw bytes that the states may hold: an encoder may begin anywhere in [2^16, 2^17).
constexpr size_t kFillBytes = kPairLanes * sizeof(uint16_t);

constexpr int MaxBase(LaneType lane) { return lane == LaneType::kF16 ? 31 : kMaxUnitBase; }

// Bytes of a plane besides the words: the raw blocks of 64 elements, and everything else.
size_t RawBytes(const FloatPlane& plane) {
  if (plane.bytes) return 0;
  const size_t elements = plane.elements() * static_cast<size_t>(plane.num_heads);
  if (plane.lane == LaneType::kF32) return 3 * elements;
  const PairElement element = ElementOf(plane.lane);
  return elements / 64 * PairRawBlockBytes(element, 64) + PairRawBlockBytes(element, elements % 64);
}

// Packs eight bytes of 0 or 1 into the bits of one byte; the first byte is the lowest bit.
std::byte PackBits(const uint8_t* bits) {
  uint64_t eight;
  std::memcpy(&eight, bits, 8);
  return static_cast<std::byte>(eight * 0x0102040810204080u >> 56);
}

// Splits up to 64 elements into exponents [n] and a raw block; returns the end of the block.
std::byte* SplitBlock(const uint16_t* words, size_t n, LaneType lane, uint8_t* exponents,
                      std::byte* raw) {
  if (lane == LaneType::kBF16) {
    for (size_t i = 0; i < n; ++i) {
      exponents[i] = static_cast<uint8_t>(words[i] >> 7);
      raw[i] = static_cast<std::byte>((words[i] & 0x7F) | (words[i] >> 8 & 0x80));
    }
    return raw + n;
  }
  uint8_t planes[3][64] = {};
  for (size_t i = 0; i < n; ++i) {
    exponents[i] = static_cast<uint8_t>(words[i] >> 10 & 0x1F);
    raw[i] = static_cast<std::byte>(words[i]);
    planes[0][i] = static_cast<uint8_t>(words[i] >> 15);
    planes[1][i] = static_cast<uint8_t>(words[i] >> 9 & 1);
    planes[2][i] = static_cast<uint8_t>(words[i] >> 8 & 1);
  }
  raw += n;
  for (const uint8_t* plane : {planes[0], planes[1], planes[2]}) {
    for (size_t i = 0; i < n; i += 8) *raw++ = PackBits(plane + i);
  }
  return raw;
}

// The symbol of every pair, among ExponentTables::symbols(), and the exponents of escapes.
std::vector<uint16_t> ChooseSymbols(const FloatPlane& plane, const uint8_t* exponents,
                                    std::span<const UnitCode> units,
                                    std::vector<std::byte>& escapes) {
  const ExponentTables& tables = ExponentTables::Get();
  std::vector<uint16_t> symbols;
  symbols.reserve(plane.elements() / 2 * static_cast<size_t>(plane.num_heads));
  ForEachPair(plane, [&](size_t head, size_t unit, size_t element) {
    const uint8_t* pair = exponents + head * plane.elements() + element;
    const UnitCode& code = units[unit];
    const uint32_t low = pair[0] - static_cast<uint32_t>(code.base[0]);
    const uint32_t high = pair[1] - static_cast<uint32_t>(code.base[1]);
    const bool inside = (low | high) < 16;
    const uint16_t escape = static_cast<uint16_t>(code.table * kPairSymbols + kEscape);
    const uint16_t symbol = inside ? tables.symbol_of(code.table)[high << 4 | low] : escape;
    symbols.push_back(symbol);
    if (symbol == escape) {
      escapes.push_back(static_cast<std::byte>(pair[0]));
      escapes.push_back(static_cast<std::byte>(pair[1]));
    }
  });
  return symbols;
}

// Encodes from the last pair to the first; the words come out in the order of reading. `states`:
// where they begin, then where they end.
std::vector<uint16_t> EncodeWords(std::span<const uint16_t> symbols,
                                  std::array<uint32_t, kPairLanes>& states) {
  const PairSymbol* const table = ExponentTables::Get().symbols();
  std::vector<uint16_t> words(symbols.size() + 1);
  uint16_t* const end = words.data() + words.size();
  uint16_t* at = end;
  for (size_t pair = symbols.size(); pair-- > 0;) {
    const PairSymbol& symbol = table[symbols[pair]];
    uint32_t state = states[pair % kPairLanes];
    // Whether a word is due cannot be predicted: it is always written, and kept if it was due.
    const bool full = state >= uint64_t{symbol.frequency} << (32 - kPairProbBits);
    at[-1] = static_cast<uint16_t>(state);
    at -= full ? 1 : 0;
    state >>= full ? 16 : 0;
    const uint32_t quotient = DivideState(state, symbol);
    states[pair % kPairLanes] =
        (quotient << kPairProbBits) + (state - quotient * symbol.frequency) + symbol.first;
  }
  words.erase(words.begin(), words.begin() + (at - words.data()));
  return words;
}

// f32 from exponents and what was stored beside them.
void JoinF32(const uint16_t* exponents, const std::byte* raw, size_t count, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t rest = 0;
    std::memcpy(&rest, raw + 3 * i, 3);
    const uint32_t bits =
        (rest & 0x7FFFFF) | (rest & 0x800000) << 8 | static_cast<uint32_t>(exponents[i]) << 23;
    std::memcpy(out + 4 * i, &bits, 4);
  }
}

// Puts the raw bits that the states held into the last 64 elements; `raw` is what the stream had of
// their block. The decoder has written their exponents, beside bits that were not theirs.
void JoinLastBlock(PairElement element, std::span<const std::byte> raw,
                   const std::array<uint16_t, kPairLanes>& fill, std::byte* last) {
  uint8_t block[PairRawBlockBytes(PairElement::kF16, 64)];
  std::memcpy(block, raw.data(), raw.size());
  std::memcpy(block + raw.size(), fill.data(), kFillBytes);
  for (size_t i = 0; i < 64; ++i, last += 2) {
    uint16_t word;
    std::memcpy(&word, last, 2);
    word =
        static_cast<uint16_t>((word & ExponentMask(element)) | PairRawBits(element, block, 64, i));
    std::memcpy(last, &word, 2);
  }
}

// What the decoder must know of a plane; nothing of the stream.
PairDecodeArgs ArgsOf(const FloatPlane& plane, const DecodeUnits& units) {
  PairDecodeArgs args;
  args.element = plane.bytes ? PairElement::kExponent : ElementOf(plane.lane);
  args.layout = plane.layout;
  args.num_heads = plane.num_heads;
  args.num_rows = plane.num_rows;
  args.dim = plane.dim;
  args.chunk = plane.chunk;
  args.tables = ExponentTables::Get().decode();
  args.unit_table = units.table.data();
  args.unit_base = units.base.data();
  return args;
}

}  // namespace

SplitElements SplitPlane(const FloatPlane& plane, const std::byte* data, size_t head_stride) {
  const size_t elements = plane.elements();
  const size_t all = elements * static_cast<size_t>(plane.num_heads);
  const size_t width = LaneBytes(plane.lane);
  SplitElements split;
  split.exponents.resize(all);
  split.raw.resize(RawBytes(plane));
  std::vector<uint32_t> words((all * width + 3) / 4);
  for (size_t head = 0; head < static_cast<size_t>(plane.num_heads); ++head) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + head * elements * width,
                data + head * head_stride, elements * width);
  }
  if (plane.lane == LaneType::kF32) {
    for (size_t i = 0; i < all; ++i) {
      const uint32_t rest = (words[i] & 0x7FFFFF) | words[i] >> 31 << 23;
      split.exponents[i] = static_cast<uint8_t>(words[i] >> 23);
      std::memcpy(&split.raw[3 * i], &rest, 3);
    }
    return split;
  }
  std::byte* raw = split.raw.data();
  uint16_t block[64];
  for (size_t i = 0; i < all; i += 64) {
    const size_t n = std::min<size_t>(64, all - i);
    std::memcpy(block, reinterpret_cast<const std::byte*>(words.data()) + 2 * i, 2 * n);
    raw = SplitBlock(block, n, plane.lane, &split.exponents[i], raw);
  }
  return split;
}

FloatPlane PlaneOf(const PartShape& shape) {
  FloatPlane plane;
  if (shape.lane == LaneType::kBytes) return plane;
  plane.lane = shape.lane;
  plane.num_rows = shape.num_rows;
  plane.dim = shape.head_dim;
  plane.layout = shape.layout == PartLayout::kKey ? PairLayout::kTiles : PairLayout::kChunks;
  plane.chunk = ChannelRun(shape);
  if (!IsFloat(shape.lane)) {
    plane.lane = LaneType::kF16;
    plane.layout = PairLayout::kTiles;
    plane.dim = shape.head_dim / kBlockValues;
    if (shape.layout == PartLayout::kValue) {
      if (shape.num_rows % kTileTokens != 0) return FloatPlane();
      plane.dim *= shape.num_rows / kTileTokens;
      plane.num_rows = kTileTokens;
    }
  } else if (shape.head_dim % 2 != 0) {
    return FloatPlane();
  }
  plane.num_heads = shape.num_heads;
  return plane;
}

size_t UnitRepeat(const PartShape& shape) {
  if (IsFloat(shape.lane) || shape.layout != PartLayout::kValue) return 1;
  return static_cast<size_t>(shape.num_rows / kTileTokens);
}

bool MayFillStates(const FloatPlane& plane) {
  const size_t elements = plane.elements();  // the last block must not begin in another head
  return !plane.bytes && plane.lane != LaneType::kF32 && elements > 0 && elements % 64 == 0;
}

bool AppendPairStream(const FloatPlane& plane, const SplitElements& split,
                      std::span<const UnitCode> units, size_t limit, std::vector<std::byte>& out) {
  std::vector<std::byte> escapes;
  const std::vector<uint16_t> symbols =
      ChooseSymbols(plane, split.exponents.data(), units, escapes);
  const size_t fill = MayFillStates(plane) ? kFillBytes : 0;
  const std::span raw = std::span(split.raw).first(split.raw.size() - fill);
  std::array<uint16_t, kPairLanes> begin = {};
  if (fill > 0) std::memcpy(begin.data(), split.raw.data() + raw.size(), fill);
  std::array<uint32_t, kPairLanes> states;
  for (size_t i = 0; i < states.size(); ++i) states[i] = kPairStateMin + begin[i];
  const std::vector<uint16_t> words = EncodeWords(symbols, states);
  const size_t bytes = 8 + 2 * words.size() + raw.size() + escapes.size() + kStateBytes;
  if (bytes > limit) return false;
  out.reserve(out.size() + bytes);
  AppendNumber(out, static_cast<uint32_t>(words.size()));
  AppendNumber(out, static_cast<uint32_t>(escapes.size() / 2));
  AppendBytes(out, std::as_bytes(std::span(words)));
  AppendBytes(out, raw);
  AppendBytes(out, escapes);
  AppendBytes(out, std::as_bytes(std::span(states)));
  return true;
}

DecodeUnits ExpandUnits(LaneType lane, std::span<const UnitCode> units) {
  DecodeUnits expanded;
  expanded.table.reserve(units.size());
  expanded.base.reserve(units.size());
  const int shift = ExponentShift(ElementOf(lane));
  for (const UnitCode& unit : units) {
    expanded.table.push_back(unit.table * static_cast<uint32_t>(kPairTableEntries));
    expanded.base.push_back((static_cast<uint32_t>(unit.base[0]) << shift) +
                            (static_cast<uint32_t>(unit.base[1]) << (16 + shift)));
  }
  return expanded;
}

std::vector<UnitCode> CollectUnits(LaneType lane, const DecodeUnits& units) {
  std::vector<UnitCode> collected(units.table.size());
  const int shift = ExponentShift(ElementOf(lane));
  for (size_t i = 0; i < collected.size(); ++i) {
    collected[i].table = static_cast<uint8_t>(units.table[i] / kPairTableEntries);
    // The low half, with its sign, is the first base; what is left is the second.
    const int16_t low = static_cast<int16_t>(units.base[i]);
    const uint32_t high = units.base[i] - static_cast<uint32_t>(static_cast<int32_t>(low));
    collected[i].base[0] = static_cast<int16_t>(low >> shift);
    collected[i].base[1] = static_cast<int16_t>(static_cast<int16_t>(high >> 16) >> shift);
  }
  return collected;
}

DecodeUnits RepeatUnits(const DecodeUnits& units, size_t times) {
  DecodeUnits repeated;
  for (size_t i = 0; i < units.table.size(); ++i) {
    repeated.table.insert(repeated.table.end(), times, units.table[i]);
    repeated.base.insert(repeated.base.end(), times, units.base[i]);
  }
  return repeated;
}

Status ReadPairStream(ByteReader& reader, const FloatPlane& plane, const DecodeUnits& units,
                      bool filled, std::byte* out, size_t head_stride) {
  uint32_t num_words = 0, num_escapes = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("num_words", num_words));
  VARVE_RETURN_IF_ERROR(reader.Read("num_escapes", num_escapes));
  std::span<const std::byte> words, raw, escapes, state_bytes;
  VARVE_RETURN_IF_ERROR(reader.Take("words", 2 * size_t{num_words}, words));
  if (filled && !MayFillStates(plane)) return reader.Bad("states of this shape hold no raw bits");
  const size_t raw_bytes = RawBytes(plane) - (filled ? kFillBytes : 0);
  VARVE_RETURN_IF_ERROR(reader.Take("raw bits", raw_bytes, raw));
  VARVE_RETURN_IF_ERROR(reader.Take("escapes", 2 * size_t{num_escapes}, escapes));
  // The states come last: they are the slack that a decoder may read past words and raw bits.
  static_assert(kStateBytes >= kPairReadSlack);
  VARVE_RETURN_IF_ERROR(reader.Take("states", kStateBytes, state_bytes));
  VARVE_RETURN_IF_ERROR(reader.Finish());
  std::array<uint32_t, kPairLanes> states;
  std::memcpy(states.data(), state_bytes.data(), kStateBytes);
  PairDecodeArgs args = ArgsOf(plane, units);
  args.states = states.data();
  args.words = reinterpret_cast<const uint8_t*>(words.data());
  args.num_words = num_words;
  args.raw = reinterpret_cast<const uint8_t*>(raw.data());
  args.escapes = reinterpret_cast<const uint8_t*>(escapes.data());
  args.num_escapes = num_escapes;
  args.out = out;
  args.head_stride = head_stride;
  std::vector<uint16_t> exponents;
  const size_t elements = plane.elements();
  const bool join = plane.lane == LaneType::kF32 && !plane.bytes;
  if (join) {
    exponents.resize(elements * static_cast<size_t>(plane.num_heads));
    args.out = reinterpret_cast<std::byte*>(exponents.data());
    args.head_stride = 2 * elements;
  }
  std::array<uint32_t, kPairLanes> end;
  args.end_states = end.data();
  bool decoded = DecodePairs(args);
  std::array<uint16_t, kPairLanes> fill = {};
  for (size_t i = 0; i < end.size() && decoded; ++i) {
    fill[i] = static_cast<uint16_t>(end[i]);
    decoded = end[i] >> 16 == 1 && (filled || fill[i] == 0);
  }
  if (!decoded) return reader.Bad("the words do not decode to the elements");
  if (filled) {
    const size_t block = PairRawBlockBytes(args.element, 64) - kFillBytes;
    const size_t heads = static_cast<size_t>(plane.num_heads);
    JoinLastBlock(args.element, raw.last(block), fill,
                  out + (heads - 1) * head_stride + 2 * elements - 128);
  }
  if (join) {
    for (size_t head = 0; head < static_cast<size_t>(plane.num_heads); ++head) {
      JoinF32(exponents.data() + head * elements, raw.data() + 3 * head * elements, elements,
              out + head * head_stride);
    }
  }
  return Status();
}

void AppendUnits(PairLayout layout, std::span<const UnitCode> units, std::vector<std::byte>& out) {
  const int bases = layout == PairLayout::kTiles ? 1 : 2;
  for (const UnitCode& unit : units) {
    for (int i = 0; i < bases; ++i) {
      out.push_back(static_cast<std::byte>(unit.base[i] - kMinUnitBase));
    }
  }
  for (size_t i = 0; i < units.size(); i += 2) {
    const int second = i + 1 < units.size() ? units[i + 1].table : 0;
    out.push_back(static_cast<std::byte>(units[i].table | second << 4));
  }
}

void AppendChangedUnits(PairLayout layout, std::span<const uint16_t> changed,
                        std::span<const UnitCode> units, std::vector<std::byte>& out) {
  AppendNumber(out, static_cast<uint16_t>(changed.size()));
  for (const uint16_t i : changed) {
    AppendNumber(out, i);
    for (int j = 0; j < (layout == PairLayout::kTiles ? 1 : 2); ++j) {
      out.push_back(static_cast<std::byte>(units[i].base[j] - kMinUnitBase));
    }
    AppendNumber(out, units[i].table);
  }
}

Status ReadChangedUnits(ByteReader& reader, const FloatPlane& plane, DecodeUnits& units) {
  const size_t bases = plane.layout == PairLayout::kTiles ? 1 : 2;
  const int max_base = MaxBase(plane.lane);
  const int shift = ExponentShift(ElementOf(plane.lane));
  uint16_t count = 0;
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader.Read("number of changed units", count));
  VARVE_RETURN_IF_ERROR(reader.Take("changed units", count * (3 + bases), bytes));
  int last = -1;
  for (const std::byte* at = bytes.data(); at != bytes.data() + bytes.size(); at += 3 + bases) {
    const int unit = static_cast<int>(at[0]) | static_cast<int>(at[1]) << 8;
    const int first = static_cast<int>(at[2]) + kMinUnitBase;
    const int second = static_cast<int>(at[1 + bases]) + kMinUnitBase;
    const uint32_t table = static_cast<uint32_t>(at[2 + bases]);
    if (unit <= last || static_cast<size_t>(unit) >= units.table.size()) {
      return reader.Bad(
          fmt::format("changed unit {} after {} of {}", unit, last, units.table.size()));
    }
    if (std::max(first, second) > max_base || table >= kNumPairTables) {
      return reader.Bad(fmt::format("changed unit {}: base {} > {} or table {} >= {}", unit,
                                    std::max(first, second), max_base, table, kNumPairTables));
    }
    last = unit;
    units.table[static_cast<size_t>(unit)] = table * static_cast<uint32_t>(kPairTableEntries);
    units.base[static_cast<size_t>(unit)] =
        (static_cast<uint32_t>(first) << shift) + (static_cast<uint32_t>(second) << (16 + shift));
  }
  return Status();
}

Status ReadUnits(ByteReader& reader, const FloatPlane& plane, size_t count,
                 std::vector<UnitCode>& units) {
  const size_t bases = plane.layout == PairLayout::kTiles ? 1 : 2;
  const int max_base = MaxBase(plane.lane);
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader.Take("units", count * bases + (count + 1) / 2, bytes));
  units.resize(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      const int stored = static_cast<int>(bytes[i * bases + (bases == 2 ? j : 0)]);
      units[i].base[j] = static_cast<int16_t>(stored + kMinUnitBase);
      if (units[i].base[j] > max_base) {
        return reader.Bad(fmt::format("base {} of unit {} > {}", units[i].base[j], i, max_base));
      }
    }
    const int tables = static_cast<int>(bytes[count * bases + i / 2]);
    units[i].table = static_cast<uint8_t>(i % 2 == 0 ? tables & 15 : tables >> 4);
    if (units[i].table >= kNumPairTables) {
      return reader.Bad(
          fmt::format("table {} of unit {} >= {}", units[i].table, i, kNumPairTables));
    }
  }
  if (count % 2 == 1 && static_cast<int>(bytes.back()) > 15) {
    return reader.Bad("the half byte behind the last unit is not 0");
  }
  return Status();
}

}  // namespace varve::store
