#include "cli/fold/fold_report.h"

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

double Ratio(uint64_t before, uint64_t after) {
  return after == 0 ? 1 : static_cast<double>(before) / static_cast<double>(after);
}

}  // namespace

std::string FoldLine(const FoldStats& stats) {
  if (stats.layers == 0) return {};
  if (stats.prompts == 0 && stats.prompts_skipped > 0)
    return fmt::format("fold: {} prompts ended unfolded, as asked", stats.prompts_skipped);
  if (stats.prompts == 0) return "fold: no prompt was long enough to be folded";
  const auto layers = static_cast<uint64_t>(stats.layers);
  return fmt::format(
      "fold: {} tokens became {} rows ({} of them as they were) in each of {} layers, pages {} -> "
      "{} ({:.2f} times smaller), {:.1f} ms",
      stats.tokens / layers, stats.rows / layers, stats.rows_raw / layers, stats.layers,
      HumanBytes(static_cast<double>(stats.bytes_before)),
      HumanBytes(static_cast<double>(stats.bytes_after)),
      Ratio(stats.bytes_before, stats.bytes_after), stats.fold_us / 1000);
}

void PrintFold(const std::string& plan, const FoldStats& stats, std::FILE* out) {
  const std::string line = FoldLine(stats);
  if (!line.empty()) WriteNote(fmt::format("{}: {}\n", plan, line), out);
}

nlohmann::ordered_json FoldJson(const FoldStats& stats) {
  if (stats.layers == 0) return nullptr;
  return {{"layers", stats.layers},
          {"prompts", stats.prompts},
          {"prompts_skipped", stats.prompts_skipped},
          {"tokens", stats.tokens},
          {"rows", stats.rows},
          {"rows_raw", stats.rows_raw},
          {"bytes_before", stats.bytes_before},
          {"bytes_after", stats.bytes_after},
          {"ratio", Ratio(stats.bytes_before, stats.bytes_after)},
          {"fold_us", stats.fold_us}};
}

}  // namespace varve::cli
