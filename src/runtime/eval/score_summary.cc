#include "runtime/eval/score_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace varve {
namespace {
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
}

void BlockMean::Add(double value) {
  if (!open_) blocks_.emplace_back();
  open_ = true;
  blocks_.back().sum += value;
  ++blocks_.back().count;
}

void BlockMean::EndBlock() { open_ = false; }

double BlockMean::mean() const {
  double sum = 0;
  int64_t count = 0;
  for (const Block& block : blocks_) {
    sum += block.sum;
    count += block.count;
  }
  return count > 0 ? sum / static_cast<double>(count) : kNone;
}

double BlockMean::standard_error() const {
  const auto num_blocks = static_cast<double>(blocks_.size());
  if (blocks_.size() < 2) return kNone;
  const double mean_value = mean();
  double squares = 0;
  double count = 0;
  for (const Block& block : blocks_) {
    const double residual = block.sum - static_cast<double>(block.count) * mean_value;
    squares += residual * residual;
    count += static_cast<double>(block.count);
  }
  return std::sqrt(squares * num_blocks / (num_blocks - 1)) / count;
}

double Quantile(std::vector<double> values, double quantile) {
  if (values.empty()) return kNone;
  const double rank = std::ceil(quantile * static_cast<double>(values.size()));
  const auto index =
      static_cast<size_t>(std::clamp(rank - 1, 0.0, static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

void ScoreSummary::Add(const TokenScore& score, double reference_loss, int64_t text_bytes) {
  loss_.Add(score.loss);
  kl_.Add(score.kl);
  difference_.Add(score.loss - reference_loss);
  kl_values_.push_back(score.kl);
  same_best_ += score.same_best ? 1 : 0;
  text_bytes_ += text_bytes;
}

void ScoreSummary::EndBlock() {
  loss_.EndBlock();
  kl_.EndBlock();
  difference_.EndBlock();
}

double ScoreSummary::perplexity() const { return std::exp(loss_.mean()); }

double ScoreSummary::bits_per_byte() const {
  if (text_bytes_ == 0) return kNone;
  return loss_.mean() / std::numbers::ln2 * static_cast<double>(tokens()) /
         static_cast<double>(text_bytes_);
}

double ScoreSummary::same_best() const {
  return tokens() > 0 ? static_cast<double>(same_best_) / static_cast<double>(tokens()) : kNone;
}

}  // namespace varve
