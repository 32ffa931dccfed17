#include "store/dictionary.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "kernels/content_hash.h"

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

uint64_t ContentHash(const PartShape& shape, uint64_t base_hash, std::span<const std::byte> body) {
  const uint64_t fields =
      static_cast<uint64_t>(shape.lane) | static_cast<uint64_t>(shape.layout) << 8 |
      static_cast<uint64_t>(shape.num_heads) << 16 | static_cast<uint64_t>(shape.head_dim) << 32;
  const uint64_t seed = fields ^ base_hash;
  const uint64_t hash = HashBytes(body.data(), body.size(), seed);
  return hash != 0 ? hash : 1;  // 0 says "none" in a packed page
}

// Rows of the samples that `base` does not have, the most frequent first. Without a base, and if
// rows do not repeat: none.
std::vector<std::byte> CollectRows(std::span<const PartView> samples, const Dictionary* base,
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
      if (base != nullptr && base->FindRow(row) >= 0) continue;
      // Two rows with one hash: the second is not kept, which costs only bytes.
      ++by_hash.try_emplace(HashRow(row), Seen{s, static_cast<size_t>(r), 0}).first->second.count;
    }
  }
  const double repeats = static_cast<double>(all - by_hash.size());
  if (base == nullptr && repeats < options.min_repeats * static_cast<double>(all)) return {};
  std::vector<Seen> kept;
  for (const auto& [hash, seen] : by_hash) {
    if (seen.count >= options.min_count) kept.push_back(seen);
  }
  std::sort(kept.begin(), kept.end(), [](const Seen& a, const Seen& b) {
    return std::pair(b.count, std::pair(a.sample, a.row)) <
           std::pair(a.count, std::pair(b.sample, b.row));
  });
  const size_t before = base != nullptr ? base->num_rows() : 0;
  const size_t cap = std::min(options.max_row_bytes / row_bytes, Dictionary::kMaxRows);
  const size_t most = cap > before ? cap - before : 0;
  if (kept.size() > most) kept.resize(most);
  std::vector<std::byte> rows(kept.size() * row_bytes);
  for (size_t i = 0; i < kept.size(); ++i) {
    GatherRow(samples[kept[i].sample], static_cast<int>(kept[i].row), rows.data() + i * row_bytes);
  }
  return rows;
}

// Chooses the codes of the units by the samples.
DecodeUnits FitUnits(const PartShape& shape, std::span<const PartView> samples) {
  const FloatPlane plane = PlaneOf(shape);
  if (plane.num_heads == 0) return DecodeUnits();
  UnitFitter fitter(plane);  // a page of 16 rows has each unit once
  for (const PartView& sample : samples) {
    const size_t stride = sample.head_stride != 0 ? sample.head_stride : sample.shape.StripBytes();
    const FloatPlane sample_plane = PlaneOf(sample.shape);
    if (sample_plane.num_heads > 0) {
      fitter.Add(sample_plane, sample.data, stride, UnitRepeat(sample.shape));
    }
  }
  return ExpandUnits(plane.lane, fitter.Fit(1));
}

// The shape that all samples share, with num_rows 16.
Result<PartShape> CommonShape(std::span<const PartView> samples) {
  if (samples.empty()) return InvalidArgument("dictionary: 0 samples, at least 1 is needed");
  PartShape shape = samples[0].shape;
  shape.num_rows = kAnyRows;
  for (size_t i = 0; i < samples.size(); ++i) {
    VARVE_RETURN_IF_ERROR(samples[i].shape.Check());
    PartShape same = samples[i].shape;
    same.num_rows = kAnyRows;
    if (same != shape) {
      return InvalidArgument(fmt::format("dictionary: sample {} has another shape than 0", i));
    }
  }
  return shape;
}

// The fields before the units.
struct Header {
  PartShape shape;
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
  if (version != kVersion) return reader.Bad(fmt::format("version {} is not 1", version));
  if (reserved != 0) return reader.Bad(fmt::format("reserved byte {} is not 0", reserved));
  header.shape = {static_cast<LaneType>(lane), static_cast<PartLayout>(layout), heads, kAnyRows,
                  dim};
  const Status checked = header.shape.Check();
  return checked.ok() ? checked : reader.Bad(checked.message());
}

}  // namespace

uint64_t HashRow(std::span<const std::byte> row) { return HashBytes(row.data(), row.size()); }

Dictionary::Dictionary(const PartShape& shape, DecodeUnits units, std::vector<std::byte> rows,
                       std::shared_ptr<const Dictionary> base)
    : shape_(shape),
      units_(std::move(units)),
      row_bytes_(RowBytes(shape)),
      base_(std::move(base)),
      base_rows_(base_ != nullptr ? base_->num_rows() : 0),
      rows_(std::move(rows)) {
  hash_ = ContentHash(shape_, base_ != nullptr ? base_->hash() : 0, Body());
  if (rows_.empty()) return;
  size_t buckets = 1;
  while (buckets < 2 * own_rows()) buckets *= 2;
  buckets_.resize(buckets);
  for (size_t i = 0; i < own_rows(); ++i) {
    size_t at = HashRow(row(base_rows_ + i)) & (buckets - 1);
    while (buckets_[at] != 0) at = (at + 1) & (buckets - 1);
    buckets_[at] = static_cast<uint32_t>(i + 1);
  }
}

int Dictionary::FindRow(std::span<const std::byte> row) const {
  if (num_rows() == 0 || row.size() != row_bytes_) return -1;
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
  if (header.num_rows > 0 && !MayHaveRows(header.shape)) {
    return reader.Bad(fmt::format("num_rows {} > 0 in a part that has no rows", header.num_rows));
  }
  const uint64_t found = ContentHash(header.shape, given, bytes.last(reader.left()));
  if (found != header.hash) {
    return reader.Bad(fmt::format("hash {:016x}, its content has {:016x}", header.hash, found));
  }
  const FloatPlane plane = PlaneOf(header.shape);
  std::vector<UnitCode> units;
  VARVE_RETURN_IF_ERROR(ReadUnits(reader, plane, plane.units(), units));
  std::span<const std::byte> rows;
  VARVE_RETURN_IF_ERROR(reader.Take("rows", header.num_rows * RowBytes(header.shape), rows));
  VARVE_RETURN_IF_ERROR(reader.Finish());
  return std::shared_ptr<const Dictionary>(new Dictionary(
      header.shape, ExpandUnits(plane.lane, units), {rows.begin(), rows.end()}, std::move(base)));
}

Result<std::shared_ptr<const Dictionary>> BuildDictionary(std::span<const PartView> samples,
                                                          const DictionaryOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const PartShape shape, CommonShape(samples));
  std::vector<std::byte> rows;
  if (MayHaveRows(shape)) rows = CollectRows(samples, nullptr, options);
  return std::shared_ptr<const Dictionary>(
      new Dictionary(shape, FitUnits(shape, samples), std::move(rows), nullptr));
}

Result<std::shared_ptr<const Dictionary>> ExtendDictionary(std::shared_ptr<const Dictionary> base,
                                                           std::span<const PartView> samples,
                                                           const DictionaryOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const PartShape shape, CommonShape(samples));
  if (base == nullptr) return BuildDictionary(samples, options);
  if (!base->Serves(shape)) {
    return InvalidArgument("dictionary: the samples have another shape than its base");
  }
  std::vector<std::byte> rows;
  if (base->num_rows() > 0) rows = CollectRows(samples, base.get(), options);
  return std::shared_ptr<const Dictionary>(
      new Dictionary(shape, FitUnits(shape, samples), std::move(rows), std::move(base)));
}

}  // namespace varve::store
