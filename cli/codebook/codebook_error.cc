#include "cli/codebook/codebook_error.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "cli/codebook/nearest_centroids.h"

namespace varve::cli {
namespace {

constexpr size_t kMaxErrorRows = 16384;

// Sum of squared errors in one sub-space of one group.
double SubspaceError(const CodebookTable& table, const UnitRows& rows, size_t group, size_t m) {
  const size_t dim = static_cast<size_t>(table.dim);
  const size_t sub_dim = static_cast<size_t>(table.sub_dim());
  const size_t codes = static_cast<size_t>(table.num_codes());
  const size_t at = group * static_cast<size_t>(table.num_subspaces) + m;
  std::vector<float> centroids(codes * sub_dim);  // [codes, sub_dim]
  for (size_t j = 0; j < codes; ++j) {
    for (size_t d = 0; d < sub_dim; ++d) {
      const int byte = table.centroids[(at * sub_dim + d) * codes + j];
      centroids[j * sub_dim + d] = table.scales[at] * static_cast<float>(byte - 128);
    }
  }
  std::vector<float> points(rows.count * sub_dim);
  for (size_t r = 0; r < rows.count; ++r) {
    std::copy_n(&rows.values[r * dim + m * sub_dim], sub_dim, &points[r * sub_dim]);
  }
  std::vector<int64_t> labels(rows.count);
  NearestCentroids(centroids.data(), table.num_codes(), table.sub_dim())
      .Find(points.data(), rows.count, labels.data());
  double sum = 0;
  for (size_t r = 0; r < rows.count; ++r) {
    for (size_t d = 0; d < sub_dim; ++d) {
      const double error =
          points[r * sub_dim + d] - centroids[static_cast<size_t>(labels[r]) * sub_dim + d];
      sum += error * error;
    }
  }
  return sum;
}

}  // namespace

Result<double> RelativeError(const Codebook& codebook, const CodebookTable& table,
                             const KvSamples& samples, Executor& executor) {
  if (samples.num_layers != codebook.num_layers || samples.num_kv_heads != codebook.num_kv_heads ||
      samples.dim(table.part) != table.dim) {
    return InvalidArgument(fmt::format(
        "the samples are of {} layers, {} KV heads of {}; the codebook is for {}, {} of {}",
        samples.num_layers, samples.num_kv_heads, samples.dim(table.part), codebook.num_layers,
        codebook.num_kv_heads, table.dim));
  }
  const SampleRows source(samples, table.part, table.grain);
  const size_t dim = static_cast<size_t>(table.dim);
  std::vector<double> errors(static_cast<size_t>(table.num_subspaces));
  size_t num_rows = 0;
  for (int group = 0; group < codebook.NumGroups(table.grain); ++group) {
    VARVE_ASSIGN_OR_RETURN(UnitRows rows, ReadUnitRows(source, group, dim, kMaxErrorRows, 1));
    if (!table.rotation.empty()) {
      rows = Rotate(rows, &table.rotation[static_cast<size_t>(group) * dim * dim], dim, executor);
    }
    num_rows += rows.count;
    executor.ParallelFor(errors.size(), [&](size_t m, int) {
      errors[m] += SubspaceError(table, rows, static_cast<size_t>(group), m);
    });
  }
  if (num_rows == 0) return 0.0;
  return std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(num_rows);
}

}  // namespace varve::cli
