#include "store/dictionary.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "kernels/content_hash.h"
#include "store/float_bits.h"
#include "store/rotated_row.h"

namespace varve::store {
namespace {

constexpr uint32_t kMagic = 0x43494456;  // "VDIC"
constexpr uint8_t kVersion = 1;
constexpr uint8_t kRotatedVersion = 2;  // of K, with rows that turn
constexpr int kAnyRows = 16;            // stands for every number of rows

size_t RowBytes(const PartShape& shape) {
  return static_cast<size_t>(shape.num_heads) * static_cast<size_t>(shape.head_dim) *
         (shape.lane == LaneType::kF32 ? 4 : 2);
}

bool MayHaveRows(const PartShape& shape) {
  return IsFloat(shape.lane) && shape.layout != PartLayout::kKey;
}

uint64_t ContentHash(const PartShape& shape, uint64_t base_hash, std::span<const std::byte> body) {
  const uint64_t fields =
      static_cast<uint64_t>(shape.lane) | static_cast<uint64_t>(shape.layout) << 8 |
      static_cast<uint64_t>(shape.num_heads) << 16 | static_cast<uint64_t>(shape.head_dim) << 32;
  const uint64_t seed = fields ^ base_hash;
  const uint64_t hash = HashBytes(body.data(), body.size(), seed);
  return hash != 0 ? hash : 1;  // 0 says "none" in a packed page
}

// The fields before the units.
struct Header {
  PartShape shape;
  bool rotated = false;
  uint32_t num_rows = 0;  // its own
  uint64_t hash = 0;
  uint64_t base_hash = 0;
};

Status ReadHeader(ByteReader& reader, Header& header) {
  uint32_t magic = 0;
  uint8_t version = 0, lane = 0, layout = 0, reserved = 0;
  uint16_t heads = 0, dim = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("magic", magic));
  VARVE_RETURN_IF_ERROR(reader.Read("version", version));
  VARVE_RETURN_IF_ERROR(reader.Read("lane type", lane));
  VARVE_RETURN_IF_ERROR(reader.Read("layout", layout));
  VARVE_RETURN_IF_ERROR(reader.Read("reserved", reserved));
  VARVE_RETURN_IF_ERROR(reader.Read("num_heads", heads));
  VARVE_RETURN_IF_ERROR(reader.Read("head_dim", dim));
  VARVE_RETURN_IF_ERROR(reader.Read("num_rows", header.num_rows));
  VARVE_RETURN_IF_ERROR(reader.Read("hash", header.hash));
  VARVE_RETURN_IF_ERROR(reader.Read("base hash", header.base_hash));
  if (magic != kMagic) return reader.Bad(fmt::format("magic {:#010x} is not VDIC", magic));
  if (version != kVersion && version != kRotatedVersion) {
    return reader.Bad(fmt::format("version {} is neither 1 nor 2", version));
  }
  header.rotated = version == kRotatedVersion;
  if (reserved != 0) return reader.Bad(fmt::format("reserved byte {} is not 0", reserved));
  header.shape = {static_cast<LaneType>(lane), static_cast<PartLayout>(layout), heads, kAnyRows,
                  dim};
  const Status checked = header.shape.Check();
  if (!checked.ok()) return reader.Bad(checked.message());
  if (header.rotated && !MayRotate(header.shape)) {
    return reader.Bad("version 2 for parts whose rows do not turn");
  }
  return Status();
}

// What version 2 has between units and rows.
Status ReadRotation(ByteReader& reader, const PartShape& shape, size_t num_rows, bool has_turns,
                    DictionaryContent& content) {
  const FloatPlane plane = PlaneOf(RowPartShape(shape, kAnyRows));
  VARVE_RETURN_IF_ERROR(ReadUnits(reader, plane, plane.units(), content.row_units));
  std::span<const std::byte> bytes;
  if (has_turns) {
    uint32_t order = 0;
    VARVE_RETURN_IF_ERROR(reader.Read("order", order));
    if (order > 1) return reader.Bad(fmt::format("order {} > 1", order));
    KeyRotation& rotation = content.rotation.emplace();
    rotation.order = static_cast<RotationOrder>(order);
    rotation.turns.resize(static_cast<size_t>(shape.head_dim) / 2);
    VARVE_RETURN_IF_ERROR(reader.Take("turns", 4 * rotation.turns.size(), bytes));
    std::memcpy(rotation.turns.data(), bytes.data(), bytes.size());
  }
  VARVE_RETURN_IF_ERROR(reader.Take("positions", 4 * num_rows, bytes));
  content.positions.resize(num_rows);
  if (num_rows > 0) std::memcpy(content.positions.data(), bytes.data(), bytes.size());
  return Status();
}

}  // namespace

PartShape RowPartShape(const PartShape& shape, size_t num_rows) {
  PartShape rows = shape;
  if (rows.layout == PartLayout::kKey) rows.layout = PartLayout::kValue;
  rows.num_rows = static_cast<int>(num_rows);
  return rows;
}

uint64_t HashRow(std::span<const std::byte> row) { return HashBytes(row.data(), row.size()); }

std::vector<Dictionary::SmallUnit> Dictionary::Shrink(const std::vector<UnitCode>& units) {
  std::vector<SmallUnit> small;
  small.reserve(units.size());
  for (const UnitCode& unit : units) {
    small.push_back({{static_cast<uint8_t>(unit.base[0] - kMinUnitBase),
                      static_cast<uint8_t>(unit.base[1] - kMinUnitBase)},
                     unit.table});
  }
  return small;
}

std::vector<UnitCode> Dictionary::Grow(const std::vector<SmallUnit>& units) {
  std::vector<UnitCode> codes;
  codes.reserve(units.size());
  for (const SmallUnit& unit : units) {
    codes.push_back({{static_cast<int16_t>(unit.base[0] + kMinUnitBase),
                      static_cast<int16_t>(unit.base[1] + kMinUnitBase)},
                     unit.table});
  }
  return codes;
}

Dictionary::Dictionary(const PartShape& shape, const DictionaryContent& content,
                       std::shared_ptr<const Dictionary> base)
    : shape_(shape),
      units_(Shrink(content.units)),
      row_units_(Shrink(content.row_units)),
      rotation_(content.rotation),
      positions_(content.positions),
      row_bytes_(RowBytes(shape)),
      base_(std::move(base)),
      base_rows_(base_ != nullptr ? base_->num_rows() : 0),
      rows_(content.rows) {
  hash_ = ContentHash(shape_, base_ != nullptr ? base_->hash() : 0, Body());
  if (!positions_.empty()) {
    std::vector<uint16_t> words(row_bytes_ / 2);
    for (size_t i = 0; i < own_rows(); ++i) {
      std::memcpy(words.data(), rows_.data() + i * row_bytes_, row_bytes_);
      energies_.push_back(RowEnergy(shape_.lane, words));
    }
    energies_.shrink_to_fit();
  }
  if (rows_.empty() || !MayHaveRows(shape_)) return;
  size_t buckets = 1;
  while (buckets < 2 * own_rows()) buckets *= 2;
  buckets_.resize(buckets);
  for (size_t i = 0; i < own_rows(); ++i) {
    size_t at = HashRow(row(base_rows_ + i)) & (buckets - 1);
    while (buckets_[at] != 0) at = (at + 1) & (buckets - 1);
    buckets_[at] = static_cast<uint32_t>(i + 1);
  }
}

DecodeUnits Dictionary::units(PairLayout layout) const {
  const LaneType lane = PlaneOf(shape_).lane;
  const bool rows = layout == PairLayout::kChunks && shape_.layout == PartLayout::kKey;
  const std::vector<SmallUnit>& from = rows ? row_units_ : units_;
  const int shift = ExponentShift(ElementOf(lane));
  DecodeUnits expanded;
  expanded.table.resize(from.size());
  expanded.base.resize(from.size());
  const auto place = [](int stored) { return static_cast<uint32_t>(stored + kMinUnitBase); };
  for (size_t i = 0; i < from.size(); ++i) {
    expanded.table[i] = from[i].table * static_cast<uint32_t>(kPairTableEntries);
    expanded.base[i] = (place(from[i].base[0]) << shift) + (place(from[i].base[1]) << (16 + shift));
  }
  return expanded;
}

const KeyRotation* Dictionary::rotation() const {
  if (rotation_) return &*rotation_;
  return base_ != nullptr ? base_->rotation() : nullptr;
}

int Dictionary::FindRow(std::span<const std::byte> row) const {
  if (num_rows() == 0 || row.size() != row_bytes_ || !MayHaveRows(shape_)) return -1;
  const uint64_t hash = HashRow(row);
  for (const Dictionary* link = this; link != nullptr; link = link->base_.get()) {
    const std::vector<uint32_t>& buckets = link->buckets_;
    // At least half of the buckets are empty, so the search ends.
    for (size_t at = hash; !buckets.empty(); ++at) {
      const uint32_t found = buckets[at & (buckets.size() - 1)];
      if (found == 0) break;
      const size_t index = link->base_rows_ + found - 1;
      if (std::memcmp(this->row(index).data(), row.data(), row_bytes_) == 0) {
        return static_cast<int>(index);
      }
    }
  }
  return -1;
}

int Dictionary::FindRotatedRow(std::span<const std::byte> row, uint32_t position) const {
  const KeyRotation* turning = rotation();
  if (turning == nullptr || row.size() != row_bytes_) return -1;
  std::vector<uint16_t> words(row_bytes_ / 2);
  std::memcpy(words.data(), row.data(), row_bytes_);
  const float energy = RowEnergy(shape_.lane, words);
  const float tolerance = EnergyTolerance(shape_.lane);
  RotatedRow candidate(shape_, *turning);
  int best = -1;
  size_t best_hits = words.size() * 3 / 4;  // fewer are another token
  for (const Dictionary* link = this; link != nullptr; link = link->base_.get()) {
    const std::vector<float>& energies = link->energies_;
    const auto first = std::lower_bound(energies.begin(), energies.end(), energy * (1 - tolerance));
    for (size_t i = static_cast<size_t>(first - energies.begin());
         i < energies.size() && energies[i] <= energy * (1 + tolerance); ++i) {
      const size_t index = link->base_rows_ + i;
      candidate.Predict(this->row(index), position - this->position(index));
      const size_t hits = candidate.CountNear(words);
      if (hits <= best_hits) continue;
      best_hits = hits;
      best = static_cast<int>(index);
    }
  }
  return best;
}

bool Dictionary::Serves(const PartShape& shape) const {
  return shape.lane == shape_.lane && shape.layout == shape_.layout &&
         shape.num_heads == shape_.num_heads && shape.head_dim == shape_.head_dim;
}

size_t Dictionary::bytes() const {
  return sizeof(*this) + (units_.capacity() + row_units_.capacity()) * sizeof(SmallUnit) +
         (rotation_ ? rotation_->turns.capacity() * sizeof(uint32_t) : 0) +
         positions_.capacity() * sizeof(uint32_t) + energies_.capacity() * sizeof(float) +
         rows_.capacity() + buckets_.capacity() * sizeof(uint32_t);
}

std::vector<std::byte> Dictionary::Body() const {
  std::vector<std::byte> body;
  const FloatPlane plane = PlaneOf(shape_);
  if (plane.num_heads > 0) AppendUnits(plane.layout, Grow(units_), body);
  if (rotation() != nullptr) {
    AppendUnits(PairLayout::kChunks, Grow(row_units_), body);
    if (rotation_) {
      AppendNumber(body, static_cast<uint32_t>(rotation_->order));
      AppendBytes(body, std::as_bytes(std::span(rotation_->turns)));
    }
    AppendBytes(body, std::as_bytes(std::span(positions_)));
  }
  AppendBytes(body, rows_);
  return body;
}

std::vector<std::byte> Dictionary::Serialize() const {
  std::vector<std::byte> out;
  AppendNumber(out, kMagic);
  AppendNumber(out, rotation() != nullptr ? kRotatedVersion : kVersion);
  AppendNumber(out, static_cast<uint8_t>(shape_.lane));
  AppendNumber(out, static_cast<uint8_t>(shape_.layout));
  AppendNumber(out, uint8_t{0});
  AppendNumber(out, static_cast<uint16_t>(shape_.num_heads));
  AppendNumber(out, static_cast<uint16_t>(shape_.head_dim));
  AppendNumber(out, static_cast<uint32_t>(own_rows()));
  AppendNumber(out, hash_);
  AppendNumber(out, base_ != nullptr ? base_->hash() : uint64_t{0});
  AppendBytes(out, Body());
  return out;
}

Result<uint64_t> Dictionary::ParseBaseHash(std::span<const std::byte> bytes) {
  ByteReader reader("dictionary", bytes);
  Header header;
  VARVE_RETURN_IF_ERROR(ReadHeader(reader, header));
  return header.base_hash;
}

Result<std::shared_ptr<const Dictionary>> Dictionary::Parse(
    std::span<const std::byte> bytes, std::shared_ptr<const Dictionary> base) {
  ByteReader reader("dictionary", bytes);
  Header header;
  VARVE_RETURN_IF_ERROR(ReadHeader(reader, header));
  const uint64_t given = base != nullptr ? base->hash() : 0;
  if (header.base_hash != given) {
    return reader.Bad(
        fmt::format("extends {:016x}, the base given is {:016x}", header.base_hash, given));
  }
  if (base != nullptr && !base->Serves(header.shape)) {
    return reader.Bad("its base is for parts of another shape");
  }
  const size_t all_rows = header.num_rows + (base != nullptr ? base->num_rows() : 0);
  if (all_rows > kMaxRows) return reader.Bad(fmt::format("num_rows {} > {}", all_rows, kMaxRows));
  if (header.num_rows > 0 && !MayHaveRows(header.shape) && !header.rotated) {
    return reader.Bad(fmt::format("num_rows {} > 0 in a part that has no rows", header.num_rows));
  }
  if (base != nullptr && header.rotated != (base->rotation() != nullptr)) {
    return reader.Bad("its base turns rows and it does not, or the other way round");
  }
  const uint64_t found = ContentHash(header.shape, given, bytes.last(reader.left()));
  if (found != header.hash) {
    return reader.Bad(fmt::format("hash {:016x}, its content has {:016x}", header.hash, found));
  }
  DictionaryContent content;
  const FloatPlane plane = PlaneOf(header.shape);
  VARVE_RETURN_IF_ERROR(ReadUnits(reader, plane, plane.units(), content.units));
  if (header.rotated) {
    VARVE_RETURN_IF_ERROR(
        ReadRotation(reader, header.shape, header.num_rows, base == nullptr, content));
  }
  std::span<const std::byte> rows;
  VARVE_RETURN_IF_ERROR(reader.Take("rows", header.num_rows * RowBytes(header.shape), rows));
  VARVE_RETURN_IF_ERROR(reader.Finish());
  content.rows.assign(rows.begin(), rows.end());
  if (header.rotated && HasHugeValue(header.shape.lane, rows)) {
    return reader.Bad("a row of K has a value of 2^122 or more");
  }
  return std::shared_ptr<const Dictionary>(new Dictionary(header.shape, content, std::move(base)));
}

}  // namespace varve::store
