#include "cli/bench/synthetic_codebook.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/bench_workload.h"
#include "cli/codebook/codebook_training.h"
#include "rungs/pq/pq_name.h"

namespace varve::cli {
namespace {

void AddSize(const std::string& name, int dim, std::vector<CodebookSize>* sizes) {
  const std::optional<PqSize> size = ParsePqName(name, dim);
  // One that does not divide the row is refused by the cache, with the clause.
  if (!size || size->subspaces == 0 || dim % size->subspaces != 0) return;
  const CodebookSize wanted{size->subspaces, size->bits};
  if (std::find(sizes->begin(), sizes->end(), wanted) == sizes->end()) sizes->push_back(wanted);
}

std::vector<CodebookSize> SizesOf(const Plan& plan, Part part, int dim) {
  std::vector<CodebookSize> sizes;
  for (const LayerRule& rule : plan.rules) {
    if (rule.codebook) continue;
    const std::optional<std::string>& fixed = part == Part::kKey ? rule.k : rule.v;
    if (fixed) AddSize(*fixed, dim, &sizes);
    for (const AgeStep& step : rule.age) {
      if (!fixed) AddSize(step.rung, dim, &sizes);
    }
  }
  return sizes;
}

std::span<const float> FirstRows(std::span<const float> rows, int dim) {
  return rows.first(std::min(rows.size(), kSyntheticRows * static_cast<size_t>(dim)));
}

}  // namespace

Result<std::shared_ptr<const Codebook>> SyntheticCodebook(const Plan& plan, const CacheShape& shape,
                                                          std::span<const float> keys,
                                                          std::span<const float> values,
                                                          Executor& executor) {
  std::vector<SharedRows> parts;
  for (const Part part : {Part::kKey, Part::kValue}) {
    const bool key = part == Part::kKey;
    const int dim = key ? shape.key_dim : shape.value_dim;
    std::vector<CodebookSize> sizes = SizesOf(plan, part, dim);
    if (sizes.empty()) continue;
    parts.push_back({part, dim, FirstRows(key ? keys : values, dim), std::move(sizes)});
  }
  if (parts.empty()) return std::shared_ptr<const Codebook>();
  TrainingOptions options;
  options.iterations = 6;
  VARVE_ASSIGN_OR_RETURN(Codebook trained, TrainOnRows(parts, shape.num_layers, shape.num_kv_heads,
                                                       CodebookGrain::kHead, options, executor));
  return std::make_shared<const Codebook>(std::move(trained));
}

Result<std::shared_ptr<const Codebook>> GaussianCodebook(const Plan& plan, const CacheShape& shape,
                                                         Executor& executor) {
  std::vector<float> keys, values;
  if (!SizesOf(plan, Part::kKey, shape.key_dim).empty()) {
    keys.resize(kSyntheticRows * static_cast<size_t>(shape.key_dim));
    FillKeys(keys, 11, executor);
  }
  if (!SizesOf(plan, Part::kValue, shape.value_dim).empty()) {
    values.resize(kSyntheticRows * static_cast<size_t>(shape.value_dim));
    FillGaussian(values, 12, executor);
  }
  return SyntheticCodebook(plan, shape, keys, values, executor);
}

}  // namespace varve::cli
