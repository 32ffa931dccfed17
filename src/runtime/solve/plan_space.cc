#include "runtime/solve/plan_space.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"

namespace varve {

PlanSpace::PlanSpace(const CacheShape& shape, PlanResources resources,
                     std::vector<std::string> rungs, int64_t num_tokens,
                     double table_bytes_per_page)
    : shape_(shape),
      resources_(std::move(resources)),
      rungs_(std::move(rungs)),
      num_tokens_(num_tokens),
      table_bytes_per_page_(table_bytes_per_page) {}

uint64_t PlanSpace::f16_bytes() const {
  return static_cast<uint64_t>(num_tokens_) * static_cast<uint64_t>(shape_.num_layers) *
         static_cast<uint64_t>(shape_.num_kv_heads) *
         static_cast<uint64_t>(shape_.key_dim + shape_.value_dim) * 2;
}

std::string PlanSpace::RuleText(size_t pair, const ExactTokens& exact) const {
  const std::string& k = rungs_[KeyRung(pair)];
  const std::string& v = rungs_[ValueRung(pair)];
  if (k == "f16" && v == "f16") return "f16";  // exact wherever it is
  return fmt::format("k={},v={},exact={},open={}", k, v, exact.first, exact.last);
}

Result<Plan> PlanSpace::MakePlan(std::span<const int> pairs, const ExactTokens& exact) const {
  if (pairs.size() != static_cast<size_t>(shape_.num_layers)) {
    return InvalidArgument(
        fmt::format("{} pairs of rungs for {} layers", pairs.size(), shape_.num_layers));
  }
  std::string text;
  for (size_t first = 0; first < pairs.size();) {
    size_t end = first + 1;
    while (end < pairs.size() && pairs[end] == pairs[first]) ++end;
    if (!text.empty()) text += "; ";
    text +=
        end == pairs.size() ? fmt::format("{}-: ", first) : fmt::format("{}-{}: ", first, end - 1);
    text += RuleText(static_cast<size_t>(pairs[first]), exact);
    first = end;
  }
  return ParsePlan(text);
}

Result<Plan> PlanSpace::UniformPlan(size_t pair, const ExactTokens& exact) const {
  return ParsePlan(RuleText(pair, exact));
}

Result<std::vector<uint64_t>> PlanSpace::LayerBytes(const ExactTokens& exact) const {
  std::vector<uint64_t> bytes;
  const auto layers = static_cast<uint64_t>(shape_.num_layers);
  for (size_t pair = 0; pair < num_pairs(); ++pair) {
    VARVE_ASSIGN_OR_RETURN(Plan plan, UniformPlan(pair, exact));
    VARVE_ASSIGN_OR_RETURN(PlanCost cost, EstimatePlan(plan, shape_, resources_, num_tokens_));
    const int64_t pages = CeilDiv(num_tokens_, cost.page_tokens);
    const auto tables =
        static_cast<uint64_t>(std::llround(static_cast<double>(pages) * table_bytes_per_page_));
    bytes.push_back(cost.bytes / layers + tables);
  }
  return bytes;
}

}  // namespace varve
