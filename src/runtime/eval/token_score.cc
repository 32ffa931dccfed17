#include "runtime/eval/token_score.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace varve {
namespace {

// Sum of term(i) in eight running sums, joined in a fixed order: the additions of one row do not
// wait for each other, and the result is the same everywhere.
template <typename Term>
double SumOver(size_t count, const Term& term) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  }
  for (; i < count; ++i) sums[0] += term(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

int32_t BestOf(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  int32_t best_id = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      best_id = static_cast<int32_t>(i);
    }
  }
  return best_id;
}

}  // namespace

RowSummary SummariseRow(std::span<const float> logits) {
  RowSummary summary;
  if (logits.empty()) return summary;
  summary.best = BestOf(logits);
  const double max = logits[summary.best];
  const double sum = SumOver(logits.size(), [&](size_t i) { return std::exp(logits[i] - max); });
  summary.log_sum_exp = max + std::log(sum);
  return summary;
}

RowSummary SoftmaxRow(std::span<const float> logits, double* probabilities) {
  RowSummary summary;
  if (logits.empty()) return summary;
  summary.best = BestOf(logits);
  const double max = logits[summary.best];
  const double sum = SumOver(
      logits.size(), [&](size_t i) { return probabilities[i] = std::exp(logits[i] - max); });
  const double scale = 1 / sum;
  for (size_t i = 0; i < logits.size(); ++i) probabilities[i] *= scale;
  summary.log_sum_exp = max + std::log(sum);
  return summary;
}

double RowDivergence(const double* probabilities, std::span<const float> reference,
                     const RowSummary& reference_summary, std::span<const float> logits,
                     const RowSummary& summary) {
  // ln p - ln q = (a - b) - (lse a - lse b). Where p is 0 the term is 0, also for logits of -Inf.
  const double difference = SumOver(reference.size(), [&](size_t i) {
    return probabilities[i] > 0 ? probabilities[i] * (static_cast<double>(reference[i]) - logits[i])
                                : 0.0;
  });
  const double kl = difference - (reference_summary.log_sum_exp - summary.log_sum_exp);
  return kl < 0 ? 0.0 : kl;  // rounding of sums; a NaN stays one
}

}  // namespace varve
