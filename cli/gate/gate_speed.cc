#include "cli/gate/gate_speed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/bench/bench_report.h"

namespace varve::cli {
namespace {

constexpr size_t kMinSelfDrops = 3;

// Twice the standard error of the median of `values`, by their median deviation: one block that
// the system disturbed does not count for more than the others. More where there are few.
double MedianError(const std::vector<double>& values) {
  const double median = Median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  const double sigma = 1.4826 * Median(deviations);
  const auto count = static_cast<double>(values.size());
  return 2 * (1 + 3 / count) * 1.2533 * sigma / std::sqrt(count);
}

}  // namespace

SpeedFigures SummariseSpeed(std::span<const SpeedBlock> blocks,
                            std::optional<double> fixed_tokens_per_s, double fixed_noise) {
  std::vector<double> ratios;
  std::vector<double> self_ratios;
  std::vector<double> plan_us;
  std::vector<double> baseline_us;
  for (const SpeedBlock& block : blocks) {
    const double baseline = (block.baseline_us + block.again_us) / 2;
    baseline_us.push_back(baseline);
    plan_us.push_back(block.plan_us);
    ratios.push_back(baseline / block.plan_us);
    self_ratios.push_back(block.baseline_us / block.again_us);
  }
  SpeedFigures figures;
  const double per_s = 1e6 * kGateBlockTokens;
  figures.tokens_per_s = per_s / Median(plan_us);
  figures.baseline_tokens_per_s = per_s / Median(baseline_us);
  figures.ratio = Median(ratios);
  figures.noise =
      std::max({std::abs(1 - Median(self_ratios)), MedianError(ratios), MedianError(self_ratios)});
  if (fixed_tokens_per_s) {
    figures.baseline_tokens_per_s = *fixed_tokens_per_s;
    figures.ratio = figures.tokens_per_s / *fixed_tokens_per_s;
    figures.noise = std::max(figures.noise, fixed_noise);
  }
  figures.drop = 1 - figures.ratio;
  return figures;
}

double SelfDrop(std::span<const SpeedBlock> blocks) {
  std::vector<double> ratios;
  for (const SpeedBlock& block : blocks) ratios.push_back(block.baseline_us / block.again_us);
  return 1 - Median(ratios);
}

double RunNoise(std::span<const double> self_drops, double times_measured) {
  if (self_drops.size() < kMinSelfDrops || times_measured <= 0) return 0;
  double square = 0;
  for (const double drop : self_drops) square += drop * drop;
  return 2 * std::sqrt(square / static_cast<double>(self_drops.size()) / times_measured);
}

SpeedVerdict JudgeSpeed(const SpeedFigures& figures, double max_drop) {
  if (std::abs(figures.drop - max_drop) <= figures.noise) return SpeedVerdict::kUndecided;
  return figures.drop <= max_drop ? SpeedVerdict::kPassed : SpeedVerdict::kFailed;
}

}  // namespace varve::cli
