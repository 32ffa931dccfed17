#include "cli/report/retention_report.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/align.h"
#include "pages/page_pool.h"
#include "plan/resolved_plan.h"
#include "retention/policy_table.h"

namespace varve::cli {
namespace {

uint64_t PageBytes(const RungDescriptor& k, const RungDescriptor& v, const CacheShape& shape) {
  const StripShape key{0, 0, shape.key_dim, shape.page_tokens};
  const StripShape value{0, 0, shape.value_dim, shape.page_tokens};
  return SlotBytes((k.StripBytes(Part::kKey, key) + v.StripBytes(Part::kValue, value)) *
                   static_cast<size_t>(shape.num_kv_heads));
}

// What a layer holds at `tokens` if the policy drops and demotes all that it may.
uint64_t FloorBytes(const LayerForm& layer, const CacheShape& shape, int64_t tokens) {
  const RetentionRule& rule = *layer.retention;
  const uint64_t open = PageBytes(*layer.open_rung, *layer.open_rung, shape);
  const int64_t page_tokens = shape.page_tokens;
  uint64_t bytes = 0;
  for (int64_t begin = 0; begin < tokens; begin += page_tokens) {
    const int64_t end = begin + page_tokens;
    const bool grows = end > tokens;
    const bool in_floor = grows || begin < rule.sink_tokens || end > tokens - rule.recent_tokens;
    if (!in_floor && rule.may_drop) continue;
    const bool is_exact = grows || begin < layer.exact_tokens;
    const LayerForm::Stage* stage = is_exact ? nullptr : layer.StageAt(tokens - end);
    if (stage == nullptr) {
      bytes += open;
    } else if (rule.policy->uses_levels) {
      bytes += rule.levels.back().bytes;
    } else {
      bytes += PageBytes(*stage->k, *stage->v, shape);
    }
  }
  // The policy keeps room for pages that are begun before it plans again.
  const int64_t next_plan = tokens + rule.every_tokens;
  const int64_t begun = (next_plan - 1) / page_tokens - CeilDiv<int64_t>(tokens, page_tokens) + 1;
  return bytes + static_cast<uint64_t>(std::max<int64_t>(0, begun)) * open;
}

}  // namespace

double WholeRatio(const CacheStats& stats) {
  const uint64_t held = stats.bytes_held + stats.bytes_tables;
  return held == 0 ? 0 : static_cast<double>(stats.bytes_f16_seen) / static_cast<double>(held);
}

RetentionReport MakeRetentionReport(const Plan& plan, const CacheShape& shape,
                                    const RetentionStats& stats, double whole_ratio,
                                    int64_t tokens) {
  RetentionReport report;
  report.stats = stats;
  report.whole_ratio = whole_ratio;
  report.tokens = tokens;
  if (!report.has_policy()) return report;
  Result<ResolvedPlan> resolved = ResolvePlan(plan, shape);
  if (!resolved.ok()) return report;  // a cache was made of it, so this does not happen
  const CacheShape& paged = resolved->shape;
  uint64_t floor = 0;
  double target = 0;
  bool has_budget = false;
  const double f16_layer =
      2.0 * paged.num_kv_heads * (paged.key_dim + paged.value_dim) * static_cast<double>(tokens);
  for (const LayerForm& layer : resolved->layers) {
    if (!layer.retention) continue;
    floor += FloorBytes(layer, paged, tokens);
    target += f16_layer / layer.retention->ratio;
    has_budget |= layer.retention->budget_bytes > 0;
  }
  if (floor > 0) report.ratio_bound = stats.layers * f16_layer / static_cast<double>(floor);
  if (!has_budget && target > 0) report.target_ratio = stats.layers * f16_layer / target;
  return report;
}

void AddRetentionKeys(const RetentionReport& report, nlohmann::ordered_json* row) {
  if (!report.has_policy()) return;
  const RetentionStats& stats = report.stats;
  row->update({{"keep_ratio", stats.keep_ratio},
               {"lossy_ratio", stats.lossy_ratio},
               {"lossy_ratio_run", stats.lossy_ratio_run},
               {"whole_ratio", report.whole_ratio},
               {"ratio_bound", report.ratio_bound},
               {"target_keep", stats.target_keep},
               {"target_keep_effective", stats.effective_keep},
               {"floor_keep_by_recent_sink", stats.floor_keep},
               {"block_quantized_keep", stats.kept_part},
               {"evict_us", stats.plan_us},
               {"last_evict_tokens", stats.tokens_evicted_last},
               {"total_evict_tokens", stats.tokens_evicted},
               {"evicted_pages", stats.pages_evicted},
               {"demoted_pages", stats.pages_demoted},
               {"policy_layers", stats.layers},
               {"plans", stats.plans},
               {"plans_stale", stats.plans_stale},
               {"plan_bytes", stats.plan_bytes},
               {"floors_bound", stats.plans_bound}});
}

std::string RetentionLine(const RetentionReport& report) {
  if (!report.has_policy()) return "";
  const RetentionStats& stats = report.stats;
  const std::string layers = fmt::format("{} layer{}", stats.layers, stats.layers == 1 ? "" : "s");
  if (stats.plans == 0) {
    return fmt::format("nothing was due in {} at {} tokens (trigger=)", layers, report.tokens);
  }
  return fmt::format(
      "{} keep {:.1f} % of {} tokens, ratio {:.2f} there ({:.2f} over the run), {:.2f} of "
      "the whole cache | {} pages dropped, {} demoted by {} plans in {:.1f} ms",
      layers, 100 * stats.keep_ratio, report.tokens, stats.lossy_ratio, stats.lossy_ratio_run,
      report.whole_ratio, stats.pages_evicted, stats.pages_demoted, stats.plans,
      stats.plan_us / 1000);
}

std::string FloorNote(const RetentionReport& report) {
  const RetentionStats& stats = report.stats;
  if (!report.has_policy() || stats.plans_bound == 0) return "";
  const std::string often = fmt::format("in {} of {} plans", stats.plans_bound, stats.plans);
  const bool is_past = report.target_ratio > 0 && report.ratio_bound >= report.target_ratio;
  if (is_past) {
    return fmt::format(
        "what must stay exceeded the target {}, while the text was short; at {} tokens it allows a "
        "ratio of {:.2f}",
        often, report.tokens, report.ratio_bound);
  }
  const std::string target =
      report.target_ratio > 0 ? fmt::format("ratio {:.2f}", report.target_ratio) : "the budget";
  return fmt::format(
      "{} cannot be held: what must stay exceeds it {}; at {} tokens it allows {:.2f} for certain, "
      "the page that comes next included",
      target, often, report.tokens, report.ratio_bound);
}

void PrintRetention(const std::string& plan, const RetentionReport& report, std::FILE* out) {
  const std::string line = RetentionLine(report);
  if (!line.empty()) fmt::print(out, "{}: {}\n", plan, line);
  const std::string note = FloorNote(report);
  if (!note.empty()) fmt::print(out, "{}: {}\n", plan, note);
}

}  // namespace varve::cli
