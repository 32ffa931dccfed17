#include "varve/codebook.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/half.h"
#include "base/random.h"
#include "rungs/pq/codebook_limits.h"

namespace varve {
namespace {

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument(fmt::format("{} {} is not in {} … {}", field, value, low, high));
}

Status CheckSize(const char* field, size_t size, uint64_t expected) {
  if (size == expected) return Status();
  return InvalidArgument(fmt::format("{} has {} values, not {}", field, size, expected));
}

Status CheckShape(const CodebookTable& table) {
  if (table.part != Part::kKey && table.part != Part::kValue) {
    return InvalidArgument(
        fmt::format("part {} is neither 0 (K) nor 1 (V)", static_cast<int>(table.part)));
  }
  VARVE_RETURN_IF_ERROR(CheckRange("grain", static_cast<int>(table.grain), 0, 2));
  VARVE_RETURN_IF_ERROR(CheckRange("dim", table.dim, kMinCodebookDim, kMaxCodebookDim));
  if (table.dim % 16 != 0) {
    return InvalidArgument(fmt::format("dim {} is not a multiple of 16", table.dim));
  }
  VARVE_RETURN_IF_ERROR(CheckRange("num_subspaces", table.num_subspaces, 1, table.dim));
  if (table.dim % table.num_subspaces != 0) {
    return InvalidArgument(
        fmt::format("num_subspaces {} does not divide dim {}", table.num_subspaces, table.dim));
  }
  return CheckRange("bits", table.bits, kMinCodebookBits, kMaxCodebookBits);
}

// Whether R^T R x is x for a few vectors of random signs. An error of 2^-12 of an entry's size in
// each entry, as rounding to f16 makes, changes a component by about 2^-11; a matrix that is not
// orthonormal changes some by more, whatever it is. All products of two rows would tell the same
// for `dim` times the work.
Status CheckRotation(const uint16_t* bits, int dim, int group) {
  const size_t n = static_cast<size_t>(dim);
  SplitMix64 random(uint64_t{0x5EED} + n);
  std::vector<float> matrix(n * n), x(n), y(n), back(n);
  for (size_t i = 0; i < n * n; ++i) {
    matrix[i] = F16ToF32(bits[i]);
    if (!std::isfinite(matrix[i])) {
      return InvalidArgument(
          fmt::format("rotation of group {}: value {} is {}, not finite", group, i, matrix[i]));
    }
  }
  for (int probe = 0; probe < 3; ++probe) {
    for (float& value : x) value = (random.Next() >> 63) != 0 ? 1.0f : -1.0f;
    std::fill(back.begin(), back.end(), 0.0f);
    for (size_t i = 0; i < n; ++i) {
      y[i] = 0;
      for (size_t j = 0; j < n; ++j) y[i] += matrix[i * n + j] * x[j];
      for (size_t j = 0; j < n; ++j) back[j] += matrix[i * n + j] * y[i];
    }
    for (size_t j = 0; j < n; ++j) {
      const float error = std::abs(back[j] - x[j]);
      if (error <= kRotationTolerance) continue;
      return InvalidArgument(
          fmt::format("rotation of group {}: not orthonormal, R^T R is {} off the unit in column "
                      "{} > {}",
                      group, error, j, kRotationTolerance));
    }
  }
  return Status();
}

Status CheckTable(const CodebookTable& table, int groups) {
  VARVE_RETURN_IF_ERROR(CheckShape(table));
  VARVE_RETURN_IF_ERROR(CheckSize("scales", table.scales.size(), NumScales(table, groups)));
  VARVE_RETURN_IF_ERROR(
      CheckSize("centroids", table.centroids.size(), NumCentroidBytes(table, groups)));
  if (!table.rotation.empty()) {
    VARVE_RETURN_IF_ERROR(
        CheckSize("rotation", table.rotation.size(), NumRotationValues(table, groups)));
  }
  for (size_t i = 0; i < table.scales.size(); ++i) {
    const float scale = table.scales[i];
    if (scale >= kMinCodebookScale && scale <= kMaxCodebookScale) continue;
    return InvalidArgument(fmt::format("scale {} is {}, not in {} … {}", i, scale,
                                       kMinCodebookScale, kMaxCodebookScale));
  }
  const auto zero = std::find(table.centroids.begin(), table.centroids.end(), 0);
  if (zero != table.centroids.end()) {
    return InvalidArgument(
        fmt::format("centroid byte {} is 0, not in 1 … 255", zero - table.centroids.begin()));
  }
  if (table.rotation.empty()) return Status();
  const size_t stride = static_cast<size_t>(table.dim) * static_cast<size_t>(table.dim);
  for (int group = 0; group < groups; ++group) {
    VARVE_RETURN_IF_ERROR(CheckRotation(table.rotation.data() + static_cast<size_t>(group) * stride,
                                        table.dim, group));
  }
  return Status();
}

// Against the tables before it.
Status CheckUnique(const Codebook& codebook, size_t index) {
  const CodebookTable& table = codebook.tables[index];
  for (size_t i = 0; i < index; ++i) {
    const CodebookTable& other = codebook.tables[i];
    if (other.part != table.part) continue;
    if (other.num_subspaces == table.num_subspaces && other.bits == table.bits) {
      return InvalidArgument(fmt::format("the same part and size as table {}", i));
    }
    if (other.dim != table.dim) {
      return InvalidArgument(
          fmt::format("dim {} is not the {} of table {}", table.dim, other.dim, i));
    }
  }
  return Status();
}

}  // namespace

const char* CodebookGrainName(CodebookGrain grain) {
  switch (grain) {
    case CodebookGrain::kModel:
      return "model";
    case CodebookGrain::kLayer:
      return "layer";
    case CodebookGrain::kHead:
      return "head";
  }
  return "?";
}

int Codebook::NumGroups(CodebookGrain grain) const {
  if (grain == CodebookGrain::kModel) return 1;
  return grain == CodebookGrain::kLayer ? num_layers : num_layers * num_kv_heads;
}

int Codebook::GroupOf(CodebookGrain grain, int layer, int kv_head) const {
  if (grain == CodebookGrain::kModel) return 0;
  return grain == CodebookGrain::kLayer ? layer : layer * num_kv_heads + kv_head;
}

const CodebookTable* Codebook::Find(Part part, int num_subspaces, int bits) const {
  for (const CodebookTable& table : tables) {
    if (table.part == part && table.num_subspaces == num_subspaces && table.bits == bits) {
      return &table;
    }
  }
  return nullptr;
}

Status CheckCodebook(const Codebook& codebook) {
  VARVE_RETURN_IF_ERROR(CheckRange("num_layers", codebook.num_layers, 1, kMaxCodebookLayers));
  VARVE_RETURN_IF_ERROR(CheckRange("num_kv_heads", codebook.num_kv_heads, 1, kMaxCodebookHeads));
  VARVE_RETURN_IF_ERROR(CheckRange("model_name bytes",
                                   static_cast<int64_t>(codebook.model_name.size()), 0,
                                   kMaxCodebookNameBytes));
  VARVE_RETURN_IF_ERROR(CheckRange(
      "trained_on bytes", static_cast<int64_t>(codebook.trained_on.size()), 0, kMaxTrainedOnBytes));
  VARVE_RETURN_IF_ERROR(
      CheckRange("tables", static_cast<int64_t>(codebook.tables.size()), 1, kMaxCodebookTables));
  for (size_t i = 0; i < codebook.tables.size(); ++i) {
    const CodebookTable& table = codebook.tables[i];
    Status status = CheckTable(table, codebook.NumGroups(table.grain));
    if (status.ok()) status = CheckUnique(codebook, i);
    if (status.ok()) continue;
    return InvalidArgument(fmt::format("table {}: {}", i, status.message()));
  }
  return Status();
}

}  // namespace varve
