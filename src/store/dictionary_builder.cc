// Dictionaries from samples: which rows repeat, how rows of K turn, and the codes of the units.

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "store/dictionary.h"
#include "store/rotated_row.h"

namespace varve::store {
namespace {

constexpr int kAnyRows = 16;  // stands for every number of rows

bool MayHaveRows(const PartShape& shape) {
  return IsFloat(shape.lane) && shape.layout != PartLayout::kKey;
}

size_t RowBytes(const PartShape& shape) {
  return shape.Bytes() / static_cast<size_t>(shape.num_rows);
}

// How many more rows fit.
size_t RoomForRows(size_t row_bytes, const Dictionary* base, const DictionaryOptions& options) {
  const size_t before = base != nullptr ? base->num_rows() : 0;
  const size_t cap = std::min(options.max_row_bytes / row_bytes, Dictionary::kMaxRows);
  return cap > before ? cap - before : 0;
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
  const size_t most = RoomForRows(row_bytes, base, options);
  if (kept.size() > most) kept.resize(most);
  std::vector<std::byte> rows(kept.size() * row_bytes);
  for (size_t i = 0; i < kept.size(); ++i) {
    GatherRow(samples[kept[i].sample], static_cast<int>(kept[i].row), rows.data() + i * row_bytes);
  }
  return rows;
}

// Chooses the codes of the units by the samples.
std::vector<UnitCode> FitUnits(const PartShape& shape, std::span<const PartView> samples) {
  const FloatPlane plane = PlaneOf(shape);
  if (plane.num_heads == 0) return {};
  UnitFitter fitter(plane);  // a page of 16 rows has each unit once
  for (const PartView& sample : samples) {
    const size_t stride = sample.head_stride != 0 ? sample.head_stride : sample.shape.StripBytes();
    const FloatPlane sample_plane = PlaneOf(sample.shape);
    if (sample_plane.num_heads > 0) {
      fitter.Add(sample_plane, sample.data, stride, UnitRepeat(sample.shape));
    }
  }
  return fitter.Fit(1);
}

// Codes for rows of K that are stored as rows.
std::vector<UnitCode> FitRowUnits(const KeyRows& rows) {
  constexpr size_t kRowsAtOnce = 64;
  const size_t count = rows.positions.size();
  UnitFitter fitter(PlaneOf(RowPartShape(rows.shape, kAnyRows)));
  std::vector<std::byte> strips;
  for (size_t begin = 0; begin < count; begin += kRowsAtOnce) {
    const PartShape shape = RowPartShape(rows.shape, std::min(kRowsAtOnce, count - begin));
    strips.resize(shape.Bytes());
    for (int r = 0; r < shape.num_rows; ++r) {
      const auto* from =
          reinterpret_cast<const std::byte*>(rows.row(begin + static_cast<size_t>(r)));
      ScatterRow(shape, from, r, {strips, 0});
    }
    fitter.Add(PlaneOf(shape), strips.data(), shape.StripBytes());
  }
  return fitter.Fit(1);
}

// How the rows of K in the samples turn, and of each token that came twice one row, unless `base`
// has it.
void LearnKeyRows(std::span<const PartView> samples, const Dictionary* base,
                  const DictionaryOptions& options, DictionaryContent& content) {
  const KeyRows rows = GatherKeyRows(samples);
  if (rows.positions.empty()) {
    if (base != nullptr) {
      content.row_units = CollectUnits(base->shape().lane, base->units(PairLayout::kChunks));
    }
    return;
  }
  std::vector<RowGroup> groups;
  if (base == nullptr) {
    std::optional<FoundRotation> found = FindRotation(rows, options.min_repeats);
    if (!found) return;
    content.rotation = std::move(found->rotation);
    groups = std::move(found->groups);
  } else {
    groups = GroupRows(rows, base->rotation()->order);
  }
  const size_t row_bytes = 2 * rows.width();
  const auto bytes_of = [&](size_t row) {
    return std::as_bytes(std::span(rows.row(row), rows.width()));
  };
  std::erase_if(groups, [&](const RowGroup& group) {
    if (group.size() < options.min_count || HasHugeValue(rows.shape.lane, bytes_of(group[0])))
      return true;
    const uint32_t position = static_cast<uint32_t>(rows.positions[group[0]]);
    return base != nullptr && base->FindRotatedRow(bytes_of(group[0]), position) >= 0;
  });
  std::stable_sort(groups.begin(), groups.end(),
                   [](const RowGroup& a, const RowGroup& b) { return a.size() > b.size(); });
  const size_t most = RoomForRows(row_bytes, base, options);
  if (groups.size() > most) groups.resize(most);
  // By energy, for finding them.
  std::vector<std::pair<float, size_t>> kept;
  for (const RowGroup& group : groups) {
    kept.emplace_back(RowEnergy(rows.shape.lane, {rows.row(group[0]), rows.width()}), group[0]);
  }
  std::sort(kept.begin(), kept.end());
  for (const auto& [energy, row] : kept) {
    content.positions.push_back(static_cast<uint32_t>(rows.positions[row]));
    const std::span<const std::byte> bytes = bytes_of(row);
    content.rows.insert(content.rows.end(), bytes.begin(), bytes.end());
  }
  content.row_units = FitRowUnits(rows);
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

DictionaryContent Learn(const PartShape& shape, std::span<const PartView> samples,
                        const Dictionary* base, const DictionaryOptions& options) {
  DictionaryContent content;
  content.units = FitUnits(shape, samples);
  if (MayHaveRows(shape) && (base == nullptr || base->num_rows() > 0)) {
    content.rows = CollectRows(samples, base, options);
  } else if (MayRotate(shape) && (base == nullptr || base->rotation() != nullptr)) {
    LearnKeyRows(samples, base, options, content);
  }
  return content;
}

}  // namespace

Result<std::shared_ptr<const Dictionary>> BuildDictionary(std::span<const PartView> samples,
                                                          const DictionaryOptions& options) {
  return ExtendDictionary(nullptr, samples, options);
}

Result<std::shared_ptr<const Dictionary>> ExtendDictionary(std::shared_ptr<const Dictionary> base,
                                                           std::span<const PartView> samples,
                                                           const DictionaryOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const PartShape shape, CommonShape(samples));
  if (base != nullptr && !base->Serves(shape)) {
    return InvalidArgument("dictionary: the samples have another shape than its base");
  }
  const DictionaryContent content = Learn(shape, samples, base.get(), options);
  return std::shared_ptr<const Dictionary>(new Dictionary(shape, content, std::move(base)));
}

}  // namespace varve::store
