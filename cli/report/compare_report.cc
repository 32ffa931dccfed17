#include "cli/report/compare_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "cli/report/report_page.h"
#include "runtime/eval/score_summary.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// Members that hold nothing are left out, so that their sections are, too.
Json CaseOf(const ComparedPlan& plan) {
  Json one = {{"plan", plan.plan}};
  if (!plan.pages.is_null()) one["memory"] = plan.pages;
  if (!plan.spans.is_null()) one["spans"] = plan.spans;
  if (!plan.trace.is_null()) one["trace"] = plan.trace;
  if (!plan.lossless.empty()) one["lossless"] = plan.lossless;
  return one;
}

Json SpeedRow(const Comparison& comparison, const ComparedPlan& plan) {
  return {{"plan", plan.plan},
          {"bucket", fmt::format("{}", comparison.prompt_tokens)},
          {"depth", comparison.prompt_tokens},
          {"tokens_per_s", plan.tokens_per_s},
          {"speed_ratio", plan.speed.ratio},
          {"low", plan.speed.low},
          {"high", plan.speed.high},
          {"noise", plan.speed.noise}};
}

}  // namespace

ComparedSpeed CompareSpeed(std::span<const double> f16_s, std::span<const double> plan_s) {
  std::vector<double> ratios;
  std::vector<double> even;
  std::vector<double> odd;
  for (size_t i = 0; i < std::min(f16_s.size(), plan_s.size()); ++i) {
    ratios.push_back(f16_s[i] / plan_s[i]);
    (i % 2 == 0 ? even : odd).push_back(f16_s[i]);
  }
  ComparedSpeed speed;
  if (ratios.empty()) return speed;
  speed.ratio = Quantile(ratios, 0.5);
  speed.low = Quantile(ratios, 0.25);
  speed.high = Quantile(ratios, 0.75);
  if (!odd.empty()) speed.noise = std::abs(Quantile(even, 0.5) / Quantile(odd, 0.5) - 1);
  return speed;
}

Json ComparisonDocument(const Comparison& comparison) {
  Json cases = Json::array();
  Json speed = Json::array();
  for (const ComparedPlan& plan : comparison.plans) {
    cases.push_back(CaseOf(plan));
    speed.push_back(SpeedRow(comparison, plan));
  }
  return {{"kind", "compare"},
          {"schema", 1},
          {"command", comparison.command},
          {"version", VARVE_VERSION},
          {"machine", MachineJson()},
          {"model", {{"name", comparison.model}, {"shape", comparison.shape}}},
          {"sampling", comparison.sampling},
          {"scored_tokens", comparison.scored_tokens},
          {"constants", ConstantsNote(comparison.plans)},
          {"plans", ComparisonRows(comparison)},
          {"speed", std::move(speed)},
          {"cases", std::move(cases)},
          {"prompt", {{"tokens", comparison.prompt_tokens}, {"text", comparison.prompt}}}};
}

Status WriteComparison(const std::string& path, const Comparison& comparison) {
  return WriteReport(path, "One prompt, several caches", ComparisonDocument(comparison));
}

}  // namespace varve::cli
