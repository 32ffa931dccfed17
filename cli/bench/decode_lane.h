// One plan under `varve bench decode`: its cache, filled to a depth, and the times of its steps.
// The cache holds one sequence or a batch of them, which share no pages; a step decodes a token of
// each.

#ifndef VARVE_CLI_BENCH_DECODE_LANE_H_
#define VARVE_CLI_BENCH_DECODE_LANE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/synthetic_rows.h"
#include "runtime/model/decoder_model.h"
#include "varve/cache.h"

namespace varve::cli {

// The options of a plan's cache, with a codebook of random rows where the plan needs one and the
// model has none.
Result<CacheOptions> LaneOptions(const Plan& plan, const DecoderModel& model, Executor& executor);
// The bytes that such a cache will hold for a sequence of num_tokens: of the rungs that run, where
// one falls back.
Result<uint64_t> EstimateLane(const CacheOptions& options, const CacheShape& shape,
                              int64_t num_tokens);

class DecodeLane {
 public:
  static Result<std::unique_ptr<DecodeLane>> Make(std::string name, const Plan& plan,
                                                  const DecoderModel& model, Executor& executor,
                                                  int batch = 1);
  // `options` from LaneOptions; `batch` sequences, at least one.
  static Result<std::unique_ptr<DecodeLane>> Make(std::string name, CacheOptions options,
                                                  const DecoderModel& model, int batch = 1);

  const std::string& name() const { return name_; }
  const Cache& cache() const { return *cache_; }
  const Plan& plan() const { return cache_->plan(); }
  int batch() const { return static_cast<int>(sequences_.size()); }
  // True if a policy (evict=) watches what is attended to: pages that it has dropped do not come
  // back with Truncate, so that repetitions may differ.
  bool has_policy() const { return stats_.retention.layers > 0; }
  // Behind the last steps, before they were forgotten.
  const CacheReport& stats_behind_steps() const { return stats_; }
  // Microseconds of each step of the last TimeSteps.
  const std::vector<double>& step_us() const { return step_us_; }
  // Of the last TimeSteps, where stages are timed.
  const StageTimes& step_stages() const { return step_stages_; }
  // Of all rows that SetDepth has fed, likewise.
  const StageTimes& fill_stages() const { return fill_stages_; }
  // What the process grew by while this cache was filled.
  uint64_t resident_growth() const { return resident_growth_; }

  // Brings every sequence to `depth`, by rows or by Truncate, and ends the prompt there. Policies
  // keep to their budget while rows come in; no query looks at those, so the pages that stay are
  // the youngest.
  Status SetDepth(const SyntheticRows& rows, int64_t depth);
  // Decodes `steps` tokens of each sequence greedily behind the present depth and forgets them
  // again. Returns the microseconds of one step, on average; `tokens` gets what was decoded, step
  // by step.
  Result<double> TimeSteps(DecoderRunner& runner, int steps, std::vector<int32_t>* tokens);
  // Of the last step, [batch, vocab_size].
  const std::vector<float>& logits() const { return logits_; }

 private:
  DecodeLane() = default;
  Status SetDepthOf(SequenceId* sequence, const SyntheticRows& rows, int64_t depth);

  std::string name_;
  std::unique_ptr<Cache> cache_;
  std::vector<SequenceId> sequences_;
  uint64_t resident_growth_ = 0;
  std::vector<float> logits_;
  CacheReport stats_;
  std::vector<double> step_us_;
  StageTimes step_stages_;
  StageTimes fill_stages_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_DECODE_LANE_H_
