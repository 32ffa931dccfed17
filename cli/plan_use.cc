#include "cli/plan_use.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "rungs/rung_table.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string RatioText(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.2f}", ratio) : "-";
}

}  // namespace

double AllInRatio(const PlanCost& cost, uint64_t constant_bytes) {
  uint64_t bytes = 0;
  uint64_t budget = std::numeric_limits<uint64_t>::max();
  for (const RangeCost& range : cost.ranges) {
    const bool has_target = range.policy_bytes > 0 && !range.has_budget;
    bytes += has_target ? std::min(range.policy_bytes, range.bytes) : range.bytes;
    if (range.policy_bytes > 0 && range.has_budget) budget = std::min(budget, range.policy_bytes);
  }
  const uint64_t all = std::min(bytes, budget) + constant_bytes;
  return all == 0 ? 1 : static_cast<double>(cost.bytes_f16) / static_cast<double>(all);
}

Plan PlanAsRun(Plan plan, const CacheShape& shape, std::span<const FallbackUse> fallbacks) {
  for (LayerRule& rule : plan.rules) {
    bool needs_codebook = false;
    const auto settle = [&](Part part, std::string* name) {
      const int dim = part == Part::kKey ? shape.key_dim : shape.value_dim;
      const RungDescriptor* rung = FindRung(*name, dim);
      for (const FallbackUse& use : fallbacks) {
        if (use.first_layer != rule.first_layer || use.part != part) continue;
        if (rung != nullptr && use.asked == rung->name) *name = use.used;
      }
      const RungDescriptor* runs = FindRung(*name, dim);
      needs_codebook = needs_codebook || (runs != nullptr && runs->needs_codebook());
    };
    if (rule.k) settle(Part::kKey, &*rule.k);
    if (rule.v) settle(Part::kValue, &*rule.v);
    for (AgeStep& step : rule.age) settle(rule.k ? Part::kValue : Part::kKey, &step.rung);
    rule.fallback.reset();
    if (!needs_codebook) rule.codebook.reset();
  }
  return plan;
}

PlanUse MakePlanUse(const Plan& plan, const CacheShape& shape, const CacheUse& of_cache) {
  PlanUse use;
  use.codebook_bytes = of_cache.codebook_bytes;
  use.compressor_bytes = of_cache.compressor_bytes;
  use.fallbacks = of_cache.fallbacks;
  if (use.compressor_bytes > 0) return use;
  const Plan ran = PlanAsRun(plan, shape, use.fallbacks);
  const Result<PlanCost> short_cost = EstimatePlan(ran, shape, {.assumed = true}, 4096);
  if (short_cost.ok()) use.all_in_4k = AllInRatio(*short_cost, use.constant_bytes());
  const Result<PlanCost> long_cost = EstimatePlan(ran, shape, {.assumed = true}, 32768);
  if (long_cost.ok()) use.all_in_32k = AllInRatio(*long_cost, use.constant_bytes());
  return use;
}

Json FallbacksJson(const std::vector<FallbackUse>& fallbacks) {
  Json rows = Json::array();
  for (const FallbackUse& use : fallbacks) {
    rows.push_back({{"first_layer", use.first_layer},
                    {"last_layer", use.last_layer},
                    {"part", use.part == Part::kKey ? "k" : "v"},
                    {"asked", use.asked},
                    {"used", use.used},
                    {"reason", use.reason}});
  }
  return rows;
}

void AddPlanUseKeys(const PlanUse& use, Json* row) {
  (*row)["codebook_bytes"] = use.codebook_bytes;
  (*row)["compressor_bytes"] = use.compressor_bytes;
  (*row)["ratio_all_in_4k"] = use.all_in_4k;
  (*row)["ratio_all_in_32k"] = use.all_in_32k;
  (*row)["fallbacks"] = FallbacksJson(use.fallbacks);
}

std::string FallbackText(const FallbackUse& use) {
  const std::string layers = use.first_layer == use.last_layer
                                 ? fmt::format("layer {}", use.first_layer)
                                 : fmt::format("layers {}-{}", use.first_layer, use.last_layer);
  return fmt::format("{} {}: {} -> {}: {}", layers, use.part == Part::kKey ? "k" : "v", use.asked,
                     use.used, use.reason);
}

void PrintFallbacks(const std::string& plan, const std::vector<FallbackUse>& fallbacks,
                    std::FILE* out) {
  for (const FallbackUse& use : fallbacks)
    WriteNote(fmt::format("{}: fallback: {}\n", plan, FallbackText(use)), out);
}

bool AnyConstants(const std::vector<PlanUse>& uses) {
  return std::any_of(uses.begin(), uses.end(),
                     [](const PlanUse& use) { return use.constant_bytes() > 0; });
}

void Extend(std::vector<std::string>& cells, const std::vector<std::string>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

void PrintAllInNote(std::FILE* out) {
  fmt::print(
      out,
      "Constants of the model (codebooks, compressors) are in no other figure; all-in is "
      "f16's bytes of one sequence\nof 4096 and of 32768 tokens over the plan's with them.\n");
}

std::vector<std::string> PlanUseHeaders() { return {">constants", ">all-in 4K", ">all-in 32K"}; }

std::vector<std::string> PlanUseCells(const PlanUse& use) {
  return {use.constant_bytes() == 0 ? "-" : HumanBytes(static_cast<double>(use.constant_bytes())),
          RatioText(use.all_in_4k), RatioText(use.all_in_32k)};
}

}  // namespace varve::cli
