#include "cuda/backend/device_codebooks.h"

#include <cstring>
#include <map>
#include <string>

#include "base/align.h"
#include "cuda/pq_rows.h"
#include "rungs/pq/pq_rung.h"

namespace varve::cuda {
namespace {

// Where the arrays of a table lie, in bytes from the beginning.
struct TablePlace {
  size_t scales = 0;
  size_t centroids = 0;
  size_t rows = 0;
  size_t pair_rows = 0;
  size_t rotation = 0;
};

template <class T>
size_t Place(const std::vector<T>& values, std::vector<std::byte>* image) {
  const size_t at = AlignUp<size_t>(image->size(), 256);
  image->resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(image->data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

// The rows of all groups of a table.
std::vector<uint8_t> RowsOf(const CodebookTable& table) {
  std::vector<uint8_t> rows(table.centroids.size());
  const size_t group = static_cast<size_t>(table.dim) << table.bits;
  for (size_t at = 0; at < rows.size(); at += group) {
    WritePqRows(&table.centroids[at], table.dim, table.bits, &rows[at]);
  }
  return rows;
}
std::vector<uint8_t> PairRowsOf(const CodebookTable& table, Part part) {
  if (!HasPairRows(table.dim, table.num_subspaces, table.bits)) return {};
  std::vector<uint8_t> rows(table.centroids.size());
  const size_t group = static_cast<size_t>(table.dim) << table.bits;
  for (size_t at = 0; at < rows.size(); at += group) {
    WritePairRows(&table.centroids[at], part == Part::kValue, &rows[at]);
  }
  return rows;
}

}  // namespace

Status DeviceCodebooks::Create(const CacheShape& shape, std::span<const RungUse> uses,
                               cudaStream_t stream) {
  by_layer_.assign(2 * static_cast<size_t>(shape.num_layers), {});
  std::vector<std::byte> image;
  std::map<const CodebookTable*, TablePlace> places;
  struct Found {
    RungUse use;
    const Codebook* codebook;
    const CodebookTable* table;
  };
  std::vector<Found> found;
  for (const RungUse& use : uses) {
    if (!use.rung->descriptor().needs_codebook()) continue;
    const auto& rung = static_cast<const PqRung&>(*use.rung);
    const PqSize size = rung.size();
    if (bits_ != 0 && (size.subspaces != subspaces_ || size.bits != bits_)) {
      return Unimplemented("layer " + std::to_string(use.layer) + ": rung " +
                           std::string(rung.name()) + " beside pq" + std::to_string(subspaces_) +
                           "x" + std::to_string(bits_) + ": a cache on a GPU has one size of pq");
    }
    subspaces_ = size.subspaces;
    bits_ = size.bits;
    const CodebookTable* table = rung.codebook()->Find(use.part, size.subspaces, size.bits);
    if (places.find(table) == places.end()) {
      places[table] = {Place(table->scales, &image), Place(table->centroids, &image),
                       Place(RowsOf(*table), &image), Place(PairRowsOf(*table, use.part), &image),
                       Place(table->rotation, &image)};
    }
    found.push_back({use, rung.codebook(), table});
  }
  if (found.empty()) return Status();
  VARVE_RETURN_IF_ERROR(memory_.Reserve(image.size()));
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(memory_.as<std::byte>(), image.data(),
                                                   image.size(), cudaMemcpyHostToDevice, stream),
                                   "copying codebooks", image.size()));
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "copying codebooks"));
  for (const auto& [use, codebook, table] : found) {
    const TablePlace& place = places[table];
    const auto group = static_cast<int64_t>(codebook->GroupOf(table->grain, use.layer, 0));
    const bool per_head = table->grain == CodebookGrain::kHead;
    const int64_t centroids = static_cast<int64_t>(table->dim) << table->bits;
    const int64_t turns = static_cast<int64_t>(table->dim) * table->dim;
    const std::byte* base = memory_.as<std::byte>();
    DeviceCodebook& out =
        by_layer_[2 * static_cast<size_t>(use.layer) + static_cast<size_t>(use.part)];
    out.centroids = reinterpret_cast<const uint8_t*>(base + place.centroids) + group * centroids;
    out.scales = reinterpret_cast<const float*>(base + place.scales) + group * table->num_subspaces;
    out.rows = reinterpret_cast<const uint8_t*>(base + place.rows) + group * centroids;
    if (HasPairRows(table->dim, table->num_subspaces, table->bits)) {
      out.pair_rows = reinterpret_cast<const uint8_t*>(base + place.pair_rows) + group * centroids;
    }
    if (!table->rotation.empty()) {
      out.rotation = reinterpret_cast<const uint16_t*>(base + place.rotation) + group * turns;
    }
    out.centroid_stride = per_head ? centroids : 0;
    out.scale_stride = per_head ? table->num_subspaces : 0;
    out.rotation_stride = per_head ? turns : 0;
  }
  return Status();
}

const DeviceCodebook& DeviceCodebooks::Of(int layer, Part part) const {
  return by_layer_[2 * static_cast<size_t>(layer) + static_cast<size_t>(part)];
}

}  // namespace varve::cuda
