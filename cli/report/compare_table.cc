// The comparison as text and as JSON rows.

#include <cmath>

#include <fmt/format.h>

#include "cli/lossless/lossless_report.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/compare_report.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"

namespace varve::cli {

std::string HumanDivergence(double kl) {
  if (std::isnan(kl)) return "–";
  if (!std::isfinite(kl)) return "not finite";
  if (kl <= 0) return "0";
  if (kl < 1e-4) return fmt::format("{:.1e}", kl);
  return kl < 0.1 ? fmt::format("{:.2g}", kl) : fmt::format("{:.2f}", kl);
}

std::string HumanPercent(double share) {
  return std::isnan(share) ? "–" : fmt::format("{:.1f} %", 100 * share);
}

std::string HumanFigure(double value, int decimals) {
  return std::isnan(value) ? "–" : fmt::format("{:.{}f}", value, decimals);
}

void PrintFigures(const ComparedPlan& plan, const ComparedPlan* reference, std::FILE* out) {
  std::string line =
      fmt::format("    {}, {} tokens/s", HumanBytes(static_cast<double>(plan.memory.bytes)),
                  HumanFigure(plan.tokens_per_s, 1));
  if (reference != nullptr) {
    line += fmt::format(", {}, KL {}", SizeAgainstF16(plan.memory.ratio),
                        HumanDivergence(plan.kl_mean));
    line += plan.first_difference < 0
                ? std::string(", the same text as f16")
                : fmt::format(", differs from f16 at token {}", plan.first_difference + 1);
  }
  fmt::print(out, "{}\n", line);
}

std::string ConstantsNote(const std::vector<ComparedPlan>& plans) {
  std::string note;
  for (const ComparedPlan& plan : plans) {
    if (plan.use.constant_bytes() == 0) continue;
    note += note.empty() ? "constants, once for the model and in no other figure: " : ", ";
    note += plan.plan + " " + HumanBytes(static_cast<double>(plan.use.constant_bytes()));
  }
  return note;
}

void PrintComparison(const Comparison& comparison, std::FILE* out) {
  TextTable table({"plan", ">cache", ">bytes/token", ">x smaller", ">KL mean", ">KL max",
                   ">same best", ">differs at", ">tokens/s", ">prompt tokens/s"});
  for (const ComparedPlan& plan : comparison.plans) {
    const bool is_reference = &plan == comparison.plans.data();
    const bool differs = plan.first_difference >= 0;
    table.AddRow({plan.plan, HumanBytes(static_cast<double>(plan.memory.bytes)),
                  fmt::format("{:.0f}", plan.memory.bytes_per_token),
                  fmt::format("{:.2f}", plan.memory.ratio),
                  is_reference ? "–" : HumanDivergence(plan.kl_mean),
                  is_reference ? "–" : HumanDivergence(plan.kl_max),
                  is_reference ? "–" : HumanPercent(plan.same_best),
                  differs ? fmt::format("{}", plan.first_difference + 1) : "–",
                  HumanFigure(plan.tokens_per_s, 1), HumanFigure(plan.prompt_tokens_per_s, 0)});
  }
  fmt::print(out,
             "\n{} prompt tokens; KL (nats), agreement and speed over the {} tokens of the f16 "
             "text, all plans in turn\n",
             comparison.prompt_tokens, comparison.scored_tokens);
  table.Print(out);
  const std::string codebooks = ConstantsNote(comparison.plans);
  if (!codebooks.empty()) fmt::print(out, "{}\n", codebooks);
  for (const ComparedPlan& plan : comparison.plans) {
    PrintRetention(plan.plan, plan.metrics, plan.tokens_seen, out);
    PrintLossless(plan.plan, plan.metrics.lossless, out);
    PrintFallbacks(plan.plan, plan.use.fallbacks, out);
    PrintNonfinite(plan.plan, plan.nonfinite_values, out);
    if (plan.fits()) continue;
    fmt::print(
        out, "{}: {} > --max-bytes {}: it does not fit, and ran without the cap as the reference\n",
        plan.plan, HumanBytes(static_cast<double>(plan.memory.bytes)),
        HumanBytes(static_cast<double>(plan.max_bytes)));
  }
}

nlohmann::ordered_json ComparisonRows(const Comparison& comparison) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const ComparedPlan& plan : comparison.plans) {
    const bool differs = plan.first_difference >= 0;
    rows.push_back({{"plan", plan.plan},
                    {"role", &plan == comparison.plans.data() ? "baseline" : "candidate"},
                    {"model", comparison.model},
                    {"prompt_tokens", comparison.prompt_tokens},
                    {"tokens", plan.tokens.size()},
                    {"tokens_per_s", plan.tokens_per_s},
                    {"prompt_tokens_per_s", plan.prompt_tokens_per_s},
                    {"cache_bytes", plan.memory.bytes},
                    {"cache_bytes_f16", plan.memory.bytes_f16},
                    {"bytes_per_token", plan.memory.bytes_per_token},
                    {"ratio", plan.memory.ratio},
                    {"kl_mean", plan.kl_mean},
                    {"kl_max", plan.kl_max},
                    {"top1", plan.same_best},
                    {"scored_tokens", comparison.scored_tokens},
                    {"first_difference", differs ? Json(plan.first_difference) : Json(nullptr)},
                    {"stop", StopReasonName(plan.stop)},
                    {"text", plan.text}});
    AddCacheMetrics(plan.metrics, &rows.back());
    rows.back()["nonfinite_values"] = plan.nonfinite_values;
    if (plan.max_bytes > 0) {
      rows.back()["max_bytes"] = plan.max_bytes;
      rows.back()["fits"] = plan.fits();
    }
    AddPlanUseKeys(plan.use, &rows.back());
  }
  return rows;
}

}  // namespace varve::cli
