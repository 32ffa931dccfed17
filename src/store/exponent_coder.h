// Float strips as exponent pairs and raw bits: our own lossless mode for f16, bf16 and f32.
//
// In KV rows the mantissa is noise, and mostly the sign too; the exponents of a channel take a few
// values around their median. So only exponents are entropy-coded, two at a time, by static tables
// of the shape around the median (exponent_tables.h). All other bits are copied. A stream needs the
// UnitCode of each unit (see exponent_pairs.h), which comes with the stream or from a dictionary.
// Functions are pure.

#ifndef VARVE_STORE_EXPONENT_CODER_H_
#define VARVE_STORE_EXPONENT_CODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "kernels/exponent_pairs.h"
#include "store/part_image.h"

namespace varve::store {

// Exponents of a unit lie at base + (0 … 15); others are escapes.
struct UnitCode {
  int16_t base[2] = {0, 0};  // of the first and the second element of a pair; -16 … 239, f16: 31
  uint8_t table = 0;         // of ExponentTables

  bool operator==(const UnitCode&) const = default;
};

inline constexpr int kMinUnitBase = -16;
inline constexpr int kMaxUnitBase = 239;

// Floats of all heads in an order that has units: a float part, or the scales of a block part.
struct FloatPlane {
  LaneType lane = LaneType::kF16;  // a float
  PairLayout layout = PairLayout::kTiles;
  int num_heads = 0;
  int num_rows = 0;
  int dim = 0;
  int chunk = 0;
  bool bytes = false;  // bytes in place of exponents, nothing beside them; decoded to uint16_t

  size_t units() const {
    return static_cast<size_t>(num_heads) * static_cast<size_t>(PairUnits(layout, dim));
  }
  // Of one head.
  size_t elements() const { return static_cast<size_t>(num_rows) * static_cast<size_t>(dim); }
};

// The plane of a float part, or that of a block part's scales; empty (num_heads 0) if it cannot be
// cut into pairs.
FloatPlane PlaneOf(const PartShape& shape);
// How many consecutive units of the plane have the same code: the scales of V have a unit per
// block, but lie in tiles of 16 rows.
size_t UnitRepeat(const PartShape& shape);

// Chooses codes of all units by samples of the same plane.
class UnitFitter {
 public:
  // `repeat`: UnitRepeat of the part.
  explicit UnitFitter(const FloatPlane& plane, size_t repeat = 1);

  // Strips lie head_stride bytes apart; the number of rows may differ from sample to sample.
  void Add(const FloatPlane& plane, const std::byte* data, size_t head_stride, size_t repeat = 1);
  // `shifts`: how far around the median bases are tried; 0 is quickest.
  std::vector<UnitCode> Fit(int shifts) const;

 private:
  bool one_base_;
  std::vector<std::vector<uint16_t>> pairs_;  // per unit: first exponent | second << 8
};

// Exponents of all elements, head after head, and the bits beside them as the stream has them.
struct SplitElements {
  std::vector<uint8_t> exponents;
  std::vector<std::byte> raw;
};
SplitElements SplitPlane(const FloatPlane& plane, const std::byte* data, size_t head_stride);

// Changes the codes of units that do not fit this page, where that saves more than it costs.
// Returns those units, ascending. For strips of K only: their exponents drift with the position.
std::vector<uint16_t> AdaptUnits(const FloatPlane& plane, const SplitElements& split,
                                 std::vector<UnitCode>& units);

// Whether the last raw bits of such a plane may lie in the states, where they cost nothing: 16-bit
// floats in whole blocks of 64.
bool MayFillStates(const FloatPlane& plane);

// Appends the stream, with filled states if it may. False, with `out` as it was, if it would take
// more than `limit` bytes.
bool AppendPairStream(const FloatPlane& plane, const SplitElements& split,
                      std::span<const UnitCode> units, size_t limit, std::vector<std::byte>& out);

// The units of a plane in the form that the decoder takes.
struct DecodeUnits {
  std::vector<uint32_t> table;
  std::vector<uint32_t> base;
};
DecodeUnits ExpandUnits(LaneType lane, std::span<const UnitCode> units);
// Back from that form.
std::vector<UnitCode> CollectUnits(LaneType lane, const DecodeUnits& units);
// Each unit `times` times.
DecodeUnits RepeatUnits(const DecodeUnits& units, size_t times);

// Reads a stream that fills the rest of `reader`; `filled`: its states hold raw bits. Whatever it
// holds, only the strips are written.
Status ReadPairStream(ByteReader& reader, const FloatPlane& plane, const DecodeUnits& units,
                      bool filled, std::byte* out, size_t head_stride);

// Codes of units as bytes: bases + 16 (kTiles: one per unit, kChunks: two), then tables, two per
// byte.
void AppendUnits(PairLayout layout, std::span<const UnitCode> units, std::vector<std::byte>& out);
// Codes of some units, ascending: a count, then per unit its number, bases and table.
void AppendChangedUnits(PairLayout layout, std::span<const uint16_t> changed,
                        std::span<const UnitCode> units, std::vector<std::byte>& out);
Status ReadChangedUnits(ByteReader& reader, const FloatPlane& plane, DecodeUnits& units);
Status ReadUnits(ByteReader& reader, const FloatPlane& plane, size_t count,
                 std::vector<UnitCode>& units);

}  // namespace varve::store

#endif  // VARVE_STORE_EXPONENT_CODER_H_
