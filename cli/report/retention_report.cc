#include "cli/report/retention_report.h"

#include <fmt/format.h>

namespace varve::cli {

std::string RetentionLine(const CacheMetrics& metrics, int64_t tokens) {
  const RetentionStats& stats = metrics.retention;
  if (stats.layers == 0) return "";
  const std::string layers = fmt::format("{} layer{}", stats.layers, stats.layers == 1 ? "" : "s");
  if (stats.plans == 0) {
    return fmt::format("nothing was due in {} at {} tokens (trigger=)", layers, tokens);
  }
  return fmt::format(
      "{} keep {:.1f} % of {} tokens, ratio {:.2f} there ({:.2f} over the run), {:.2f} of "
      "the whole cache | {} pages dropped, {} demoted by {} plans in {:.1f} ms",
      layers, 100 * stats.keep_ratio, tokens, stats.lossy_ratio, stats.lossy_ratio_run,
      metrics.total_ratio, stats.pages_evicted, stats.pages_demoted, stats.plans,
      stats.plan_us / 1000);
}

std::string FloorNote(const RetentionStats& stats, int64_t tokens) {
  if (stats.layers == 0 || stats.plans_bound == 0) return "";
  const std::string often = fmt::format("in {} of {} plans", stats.plans_bound, stats.plans);
  const bool is_past = stats.target_ratio > 0 && stats.ratio_bound >= stats.target_ratio;
  if (is_past) {
    return fmt::format(
        "what must stay exceeded the target {}, while the text was short; at {} tokens it allows a "
        "ratio of {:.2f}",
        often, tokens, stats.ratio_bound);
  }
  const std::string target =
      stats.target_ratio > 0 ? fmt::format("ratio {:.2f}", stats.target_ratio) : "the budget";
  return fmt::format(
      "{} cannot be held: what must stay exceeds it {}; at {} tokens it allows {:.2f} for certain, "
      "the page that comes next included",
      target, often, tokens, stats.ratio_bound);
}

void PrintRetention(const std::string& plan, const CacheMetrics& metrics, int64_t tokens,
                    std::FILE* out) {
  const std::string line = RetentionLine(metrics, tokens);
  if (!line.empty()) fmt::print(out, "{}: {}\n", plan, line);
  const std::string note = FloorNote(metrics.retention, tokens);
  if (!note.empty()) fmt::print(out, "{}: {}\n", plan, note);
}

}  // namespace varve::cli
