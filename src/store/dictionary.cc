#include "store/dictionary.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/byte_io.h"

namespace varve::store {
namespace {

constexpr uint32_t kMagic = 0x43494456;  // "VDIC"
constexpr uint8_t kVersion = 1;
constexpr int kAnyRows = 16;  // stands for every number of rows

size_t RowBytes(const PartShape& shape) {
  return static_cast<size_t>(shape.num_heads) * static_cast<size_t>(shape.head_dim) *
         (shape.lane == LaneType::kF32 ? 4 : 2);
}

bool MayHaveRows(const PartShape& shape) {
  return IsFloat(shape.lane) && shape.layout != PartLayout::kKey;
}

uint64_t ContentHash(const PartShape& shape, std::span<const std::byte> body) {
  const uint64_t seed =
      static_cast<uint64_t>(shape.lane) | static_cast<uint64_t>(shape.layout) << 8 |
      static_cast<uint64_t>(shape.num_heads) << 16 | static_cast<uint64_t>(shape.head_dim) << 32;
  const uint64_t hash = XXH3_64bits_withSeed(body.data(), body.size(), seed);
  return hash != 0 ? hash : 1;  // 0 says "none" in a packed page
}

// Rows of the samples, those that come often first; none if they do not repeat.
std::vector<std::byte> CollectRows(std::span<const PartView> samples,
                                   const DictionaryOptions& options) {
  struct Seen {
    size_t sample, row, count;
  };
  const size_t row_bytes = RowBytes(samples[0].shape);
  std::unordered_map<uint64_t, Seen> by_hash;
  std::vector<std::byte> row(row_bytes);
  size_t all = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    for (int r = 0; r < samples[s].shape.num_rows; ++r, ++all) {
      GatherRow(samples[s], r, row.data());
      // Two rows with one hash: the second is not kept, which costs bytes and nothing else.
      ++by_hash.try_emplace(HashRow(row), Seen{s, static_cast<size_t>(r), 0}).first->second.count;
    }
  }
  const size_t repeats = all - by_hash.size();
  if (static_cast<double>(repeats) < options.min_repeats * static_cast<double>(all)) return {};
  std::vector<Seen> kept;
  for (const auto& [hash, seen] : by_hash) kept.push_back(seen);
  std::sort(kept.begin(), kept.end(), [](const Seen& a, const Seen& b) {
    return std::pair(b.count, std::pair(a.sample, a.row)) <
           std::pair(a.count, std::pair(b.sample, b.row));
  });
  const size_t most = std::min(options.max_row_bytes / row_bytes, Dictionary::kMaxRows);
  if (kept.size() > most) kept.resize(most);
  std::vector<std::byte> rows(kept.size() * row_bytes);
  for (size_t i = 0; i < kept.size(); ++i) {
    GatherRow(samples[kept[i].sample], static_cast<int>(kept[i].row), rows.data() + i * row_bytes);
  }
  return rows;
}

}  // namespace

uint64_t HashRow(std::span<const std::byte> row) { return XXH3_64bits(row.data(), row.size()); }

Dictionary::Dictionary(const PartShape& shape, DecodeUnits units, std::vector<std::byte> rows)
    : shape_(shape), units_(std::move(units)), rows_(std::move(rows)) {
  shape_.num_rows = kAnyRows;
  hash_ = ContentHash(shape_, Body());
  if (rows_.empty()) return;
  row_bytes_ = RowBytes(shape_);
  size_t buckets = 1;
  while (buckets < 2 * num_rows()) buckets *= 2;
  buckets_.resize(buckets);
  for (size_t i = 0; i < num_rows(); ++i) {
    size_t at = HashRow(row(i)) & (buckets - 1);
    while (buckets_[at] != 0) at = (at + 1) & (buckets - 1);
    buckets_[at] = static_cast<uint32_t>(i + 1);
  }
}

int Dictionary::FindRow(std::span<const std::byte> wanted) const {
  if (buckets_.empty() || wanted.size() != row_bytes_) return -1;
  // At least half of the buckets are empty: the search ends.
  for (size_t at = HashRow(wanted);; ++at) {
    const uint32_t found = buckets_[at & (buckets_.size() - 1)];
    if (found == 0) return -1;
    if (std::memcmp(row(found - 1).data(), wanted.data(), row_bytes_) == 0) {
      return static_cast<int>(found - 1);
    }
  }
}

bool Dictionary::Serves(const PartShape& shape) const {
  return shape.lane == shape_.lane && shape.layout == shape_.layout &&
         shape.num_heads == shape_.num_heads && shape.head_dim == shape_.head_dim;
}

size_t Dictionary::bytes() const {
  return sizeof(*this) + (units_.table.capacity() + units_.base.capacity()) * sizeof(uint32_t) +
         rows_.capacity() + buckets_.capacity() * sizeof(uint32_t);
}

std::vector<std::byte> Dictionary::Body() const {
  std::vector<std::byte> body;
  const FloatPlane plane = PlaneOf(shape_);
  if (plane.num_heads > 0) AppendUnits(plane.layout, CollectUnits(plane.lane, units_), body);
  AppendBytes(body, rows_);
  return body;
}

std::vector<std::byte> Dictionary::Serialize() const {
  std::vector<std::byte> out;
  AppendNumber(out, kMagic);
  AppendNumber(out, kVersion);
  AppendNumber(out, static_cast<uint8_t>(shape_.lane));
  AppendNumber(out, static_cast<uint8_t>(shape_.layout));
  AppendNumber(out, uint8_t{0});
  AppendNumber(out, static_cast<uint16_t>(shape_.num_heads));
  AppendNumber(out, static_cast<uint16_t>(shape_.head_dim));
  AppendNumber(out, static_cast<uint32_t>(num_rows()));
  AppendNumber(out, hash_);
  AppendBytes(out, Body());
  return out;
}

Result<std::shared_ptr<const Dictionary>> Dictionary::Parse(std::span<const std::byte> bytes) {
  ByteReader reader("dictionary", bytes);
  uint32_t magic = 0, num_rows = 0;
  uint8_t version = 0, lane = 0, layout = 0, reserved = 0;
  uint16_t heads = 0, dim = 0;
  uint64_t hash = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("magic", magic));
  VARVE_RETURN_IF_ERROR(reader.Read("version", version));
  VARVE_RETURN_IF_ERROR(reader.Read("lane type", lane));
  VARVE_RETURN_IF_ERROR(reader.Read("layout", layout));
  VARVE_RETURN_IF_ERROR(reader.Read("reserved", reserved));
  VARVE_RETURN_IF_ERROR(reader.Read("num_heads", heads));
  VARVE_RETURN_IF_ERROR(reader.Read("head_dim", dim));
  VARVE_RETURN_IF_ERROR(reader.Read("num_rows", num_rows));
  VARVE_RETURN_IF_ERROR(reader.Read("hash", hash));
  if (magic != kMagic) return reader.Bad(fmt::format("magic {:#010x} is not VDIC", magic));
  if (version != kVersion) return reader.Bad(fmt::format("version {} is not 1", version));
  if (reserved != 0) return reader.Bad(fmt::format("reserved byte {} is not 0", reserved));
  const PartShape shape = {static_cast<LaneType>(lane), static_cast<PartLayout>(layout), heads,
                           kAnyRows, dim};
  const Status checked = shape.Check();
  if (!checked.ok()) return reader.Bad(checked.message());
  if (num_rows > kMaxRows) return reader.Bad(fmt::format("num_rows {} > {}", num_rows, kMaxRows));
  if (num_rows > 0 && !MayHaveRows(shape)) {
    return reader.Bad(fmt::format("num_rows {} > 0 in a part that has no rows", num_rows));
  }
  const size_t row_bytes = num_rows * RowBytes(shape);
  if (reader.left() < row_bytes) {
    return reader.Bad(fmt::format("num_rows {}: {} bytes of rows, {} are left", num_rows, row_bytes,
                                  reader.left()));
  }
  const uint64_t found = ContentHash(shape, bytes.last(reader.left()));
  if (found != hash) {
    return reader.Bad(fmt::format("hash {:016x}, its content has {:016x}", hash, found));
  }
  const FloatPlane plane = PlaneOf(shape);
  std::vector<UnitCode> units;
  VARVE_RETURN_IF_ERROR(ReadUnits(reader, plane, plane.units(), units));
  std::span<const std::byte> rows;
  VARVE_RETURN_IF_ERROR(reader.Take("rows", row_bytes, rows));
  VARVE_RETURN_IF_ERROR(reader.Finish());
  return std::shared_ptr<const Dictionary>(
      new Dictionary(shape, ExpandUnits(plane.lane, units), {rows.begin(), rows.end()}));
}

Result<std::shared_ptr<const Dictionary>> BuildDictionary(std::span<const PartView> samples,
                                                          const DictionaryOptions& options) {
  if (samples.empty()) return InvalidArgument("dictionary: 0 samples, at least 1 is needed");
  PartShape shape = samples[0].shape;
  for (size_t i = 0; i < samples.size(); ++i) {
    VARVE_RETURN_IF_ERROR(samples[i].shape.Check());
    PartShape same = samples[i].shape;
    same.num_rows = shape.num_rows;
    if (same != shape) {
      return InvalidArgument(fmt::format("dictionary: sample {} has another shape than 0", i));
    }
  }
  shape.num_rows = kAnyRows;
  const FloatPlane plane = PlaneOf(shape);
  DecodeUnits units;
  if (plane.num_heads > 0) {
    UnitFitter fitter(plane);  // a page of 16 rows has each unit once
    for (const PartView& sample : samples) {
      const size_t stride =
          sample.head_stride != 0 ? sample.head_stride : sample.shape.StripBytes();
      const FloatPlane sample_plane = PlaneOf(sample.shape);
      if (sample_plane.num_heads > 0) {
        fitter.Add(sample_plane, sample.data, stride, UnitRepeat(sample.shape));
      }
    }
    units = ExpandUnits(plane.lane, fitter.Fit(1));
  }
  std::vector<std::byte> rows;
  if (MayHaveRows(shape)) rows = CollectRows(samples, options);
  return std::shared_ptr<const Dictionary>(
      new Dictionary(shape, std::move(units), std::move(rows)));
}

}  // namespace varve::store
