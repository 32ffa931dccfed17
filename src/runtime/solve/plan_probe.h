// PlanProbe: what a plan costs in KL on a text, in a fraction of the time of an evaluation.
//
// An evaluation (eval/window_evaluator.h) reads whole windows with every plan. A probe reads them
// once with the f16 cache and keeps the rows of all but the last tokens, the tail. A plan's cache
// is then given those rows, which it seals as the plan says, and only the tail is computed. Every
// token of the tail sees nearly the whole window in the plan's rungs. What a probe leaves out: rows
// of the text before the tail are those of the exact cache, so errors of early tokens that make
// later rows worse are not in it. Figures of a probe therefore compare plans with one another; they
// are below those of an evaluation.
//
// Plans whose decisions depend on attention or on the end of a prompt (evict=, fold=) are refused:
// nobody looks at the rows that are handed over. Owns its caches; keeps the model. One thread at a
// time; figures do not depend on the executor's threads.

#ifndef VARVE_RUNTIME_SOLVE_PLAN_PROBE_H_
#define VARVE_RUNTIME_SOLVE_PLAN_PROBE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/model/decoder_model.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

class PlanProbe {
 public:
  // Refuses windows that are no longer than the tail. `executor` is not owned.
  static Result<std::unique_ptr<PlanProbe>> Make(const std::shared_ptr<const DecoderModel>& model,
                                                 std::vector<std::vector<int32_t>> windows,
                                                 int64_t tail_tokens, ProductPrecision precision,
                                                 Executor& executor);

  // Reads the next window with the f16 cache, until all are read.
  bool ready() const { return sequences_.size() == windows_.size(); }
  Status ReadNextWindow();

  // Mean KL(f16 || plan) over the tokens of all tails, nats. Requires ready().
  Result<double> Loss(const Plan& plan);

  int64_t num_windows() const { return static_cast<int64_t>(windows_.size()); }
  // Tokens that the model computes for one plan.
  int64_t tokens_per_loss() const { return num_windows() * tail_tokens_; }
  // Records and tables of one page, from the f16 cache. 0 before a window has been read.
  double table_bytes_per_page() const;

 private:
  PlanProbe(const std::shared_ptr<const DecoderModel>& model,
            std::vector<std::vector<int32_t>> windows, int64_t tail_tokens,
            ProductPrecision precision, Executor& executor);

  Result<std::unique_ptr<Cache>> MakeCache(const Plan& plan) const;
  // Hands the exact rows before the tail to another cache.
  Status CopyRows(SequenceId from, int64_t num_tokens, Cache& to, SequenceId to_sequence);
  // Rows [begin, begin + num_tokens) of a layer and part: [tokens, kv_heads, dim].
  Status ReadLayer(SequenceId from, int layer, Part part, int64_t begin, int num_tokens,
                   std::vector<float>* rows);
  // Sum over the tail's tokens.
  Result<double> TailLoss(const std::vector<float>& reference);

  const DecoderModel& model_;
  std::vector<std::vector<int32_t>> windows_;
  int64_t tail_tokens_;
  Executor& executor_;
  std::unique_ptr<DecoderRunner> runner_;
  std::unique_ptr<Cache> exact_;
  std::vector<SequenceId> sequences_;          // [windows read], of exact_, without the tail
  std::vector<std::vector<float>> reference_;  // [windows read][tail, vocab_size] logits
  std::vector<float> logits_;                  // [tail, vocab_size] of the plan
  std::vector<float> head_rows_;               // [tokens, dim]
  std::vector<float> keys_;                    // [tokens, kv_heads, key_dim]
  std::vector<float> values_;                  // [tokens, kv_heads, value_dim]
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_PLAN_PROBE_H_
