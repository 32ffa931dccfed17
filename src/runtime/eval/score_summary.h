// ScoreSummary: the scores of a plan's tokens as the figures of a report, with their uncertainty.
//
// Tokens of a text depend on their neighbours, so the standard errors are taken over blocks of
// consecutive tokens, not over tokens: the errors would come out too small otherwise. Figures
// depend on the order of Add alone. Not thread-safe.

#ifndef VARVE_RUNTIME_EVAL_SCORE_SUMMARY_H_
#define VARVE_RUNTIME_EVAL_SCORE_SUMMARY_H_

#include <cstdint>
#include <vector>

#include "runtime/eval/token_score.h"

namespace varve {

// Mean and standard error of values that come in blocks: the ratio estimator
// sqrt(sum_b (S_b - n_b mean)^2 B / (B - 1)) / N, for B blocks of n_b values that sum to S_b.
class BlockMean {
 public:
  void Add(double value);
  // The next value begins a new block.
  void EndBlock();

  double mean() const;            // NaN without values
  double standard_error() const;  // NaN with less than two blocks

 private:
  struct Block {
    double sum = 0;
    int64_t count = 0;
  };
  std::vector<Block> blocks_;
  bool open_ = false;
};

// The value that at least the share `quantile` of `values` does not exceed (nearest rank). NaN
// without values.
double Quantile(std::vector<double> values, double quantile);

class ScoreSummary {
 public:
  // `reference_loss` is the loss of the same token in the reference, `text_bytes` the token's share
  // of the text.
  void Add(const TokenScore& score, double reference_loss, int64_t text_bytes);
  void EndBlock();

  int64_t tokens() const { return static_cast<int64_t>(kl_values_.size()); }
  double perplexity() const;
  double bits_per_byte() const;  // NaN if the tokens have no text
  double kl_mean() const { return kl_.mean(); }
  double kl_standard_error() const { return kl_.standard_error(); }
  double kl_p99() const { return Quantile(kl_values_, 0.99); }
  double same_best() const;  // share of tokens
  // ln perplexity minus that of the reference.
  double loss_difference() const { return difference_.mean(); }
  double loss_difference_standard_error() const { return difference_.standard_error(); }

 private:
  BlockMean loss_;
  BlockMean kl_;
  BlockMean difference_;
  std::vector<double> kl_values_;
  int64_t same_best_ = 0;
  int64_t text_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_SCORE_SUMMARY_H_
