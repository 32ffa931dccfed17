// What one position of a text says about a plan: the loss of the token that really follows, and how
// far the predicted distribution is from the reference's.
//
// Plain functions on one row of logits, in double: differences between caches are small (a KL of
// 1e-6 is a result), and logits in f32 leave room for them only if nothing is lost on the way. Rows
// are independent; any number of threads may work on different rows.

#ifndef VARVE_RUNTIME_EVAL_TOKEN_SCORE_H_
#define VARVE_RUNTIME_EVAL_TOKEN_SCORE_H_

#include <cstdint>
#include <span>

namespace varve {

// One row of logits, summed up.
struct RowSummary {
  double log_sum_exp = 0;  // not finite if a logit is NaN or +Inf, or if all are -Inf
  int32_t best = 0;        // highest logit; ties go to the lowest id
};

struct TokenScore {
  double loss = 0;         // -ln p(token that follows), nats
  double kl = 0;           // KL(reference || plan), nats; exactly 0 for equal rows
  bool same_best = false;  // both rows have the same best token
};

RowSummary SummariseRow(std::span<const float> logits);
// The same, and softmax(logits) into `probabilities` [logits.size()].
RowSummary SoftmaxRow(std::span<const float> logits, double* probabilities);

// KL(p || q) = sum p (ln p - ln q) with p the reference's softmax, which comes ready-made because
// several plans are compared with it. Never negative.
double RowDivergence(const double* probabilities, std::span<const float> reference,
                     const RowSummary& reference_summary, std::span<const float> logits,
                     const RowSummary& summary);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_TOKEN_SCORE_H_
