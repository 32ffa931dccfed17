#include "cli/bench/decode_lane.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/timer.h"
#include "cli/bench/stage_report.h"
#include "cli/bench/synthetic_codebook.h"
#include "runtime/model_cache.h"
#include "varve/plan_estimate.h"

namespace varve::cli {

Result<CacheOptions> LaneOptions(const Plan& plan, const DecoderModel& model, Executor& executor) {
  CacheOptions options = CacheOptionsFor(model);
  options.plan = plan;
  options.executor = &executor;
  if (options.codebook == nullptr) {
    // The rows that fill the depth are nobody's: any codebook codes them as fast.
    VARVE_ASSIGN_OR_RETURN(options.codebook, GaussianCodebook(plan, model.cache_shape(), executor));
  }
  return options;
}

Result<uint64_t> EstimateLane(const CacheOptions& options, const CacheShape& shape,
                              int64_t num_tokens) {
  VARVE_ASSIGN_OR_RETURN(
      const PlanCost cost,
      EstimatePlan(options.plan, shape,
                   {options.codebook, options.compressor, options.model_fingerprint}, num_tokens));
  return cost.bytes;
}

Result<std::unique_ptr<DecodeLane>> DecodeLane::Make(std::string name, const Plan& plan,
                                                     const DecoderModel& model,
                                                     Executor& executor) {
  VARVE_ASSIGN_OR_RETURN(CacheOptions options, LaneOptions(plan, model, executor));
  return Make(std::move(name), std::move(options), model);
}

Result<std::unique_ptr<DecodeLane>> DecodeLane::Make(std::string name, CacheOptions options,
                                                     const DecoderModel& model) {
  Result<std::unique_ptr<Cache>> cache = Cache::Create(model.cache_shape(), std::move(options));
  if (!cache.ok()) {
    return Status(cache.status().code(),
                  fmt::format("--kv \"{}\": {}", name, cache.status().message()));
  }
  VARVE_ASSIGN_OR_RETURN(SequenceId sequence, (*cache)->CreateSequence());
  std::unique_ptr<DecodeLane> lane(new DecodeLane);
  lane->name_ = std::move(name);
  lane->cache_ = std::move(*cache);
  lane->sequence_ = sequence;
  lane->logits_.resize(static_cast<size_t>(model.vocab_size()));
  return lane;
}

Status DecodeLane::SetDepth(const SyntheticRows& rows, int64_t depth) {
  const uint64_t before = ResidentBytes();
  const StageTimes stages_before = cache_->Report().stages;
  if (cache_->Report().fold.layers > 0) {
    // A depth is one prompt: all of it is folded, not what it has more than the depth before.
    VARVE_RETURN_IF_ERROR(cache_->Free(sequence_));
    VARVE_ASSIGN_OR_RETURN(sequence_, cache_->CreateSequence());
  }
  VARVE_ASSIGN_OR_RETURN(int64_t position, cache_->NextPosition(sequence_));
  if (position > depth) VARVE_RETURN_IF_ERROR(cache_->Truncate(sequence_, depth));
  VARVE_RETURN_IF_ERROR(rows.Extend(*cache_, sequence_, depth));
  VARVE_RETURN_IF_ERROR(cache_->EndPrompt(sequence_));
  cache_->WaitForPacking();
  stats_ = cache_->Report();
  AddStages(StagesBetween(stages_before, stats_.stages), &fill_stages_);
  const uint64_t after = ResidentBytes();
  if (after > before) resident_growth_ += after - before;
  return Status();
}

Result<double> DecodeLane::TimeSteps(DecoderRunner& runner, int steps,
                                     std::vector<int32_t>* tokens) {
  VARVE_ASSIGN_OR_RETURN(int64_t depth, cache_->NextPosition(sequence_));
  tokens->clear();
  step_us_.clear();
  DecodeEntry entry{sequence_, 1};
  const StageTimes before = cache_->Report().stages;
  Timer timer;
  for (int step = 0; step < steps; ++step) {
    VARVE_RETURN_IF_ERROR(runner.Decode(*cache_, {&entry, 1}, logits_.data()));
    const auto best = std::max_element(logits_.begin(), logits_.end());
    entry.token = static_cast<int32_t>(best - logits_.begin());
    tokens->push_back(entry.token);
    step_us_.push_back(timer.LapUs());
  }
  if (!std::all_of(logits_.begin(), logits_.end(), [](float x) { return std::isfinite(x); })) {
    return Internal(fmt::format("bench decode: plan {}: logits that are not finite", name_));
  }
  stats_ = cache_->Report();
  step_stages_ = StagesBetween(before, stats_.stages);
  VARVE_RETURN_IF_ERROR(cache_->Truncate(sequence_, depth));
  return std::accumulate(step_us_.begin(), step_us_.end(), 0.0) / steps;
}

}  // namespace varve::cli
