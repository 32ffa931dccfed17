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
                                                     const DecoderModel& model, Executor& executor,
                                                     int batch) {
  VARVE_ASSIGN_OR_RETURN(CacheOptions options, LaneOptions(plan, model, executor));
  return Make(std::move(name), std::move(options), model, batch);
}

Result<std::unique_ptr<DecodeLane>> DecodeLane::Make(std::string name, CacheOptions options,
                                                     const DecoderModel& model, int batch) {
  Result<std::unique_ptr<Cache>> cache = Cache::Create(model.cache_shape(), std::move(options));
  if (!cache.ok()) {
    return Status(cache.status().code(),
                  fmt::format("--kv \"{}\": {}", name, cache.status().message()));
  }
  std::unique_ptr<DecodeLane> lane(new DecodeLane);
  lane->name_ = std::move(name);
  lane->cache_ = std::move(*cache);
  for (int i = 0; i < batch; ++i) {
    VARVE_ASSIGN_OR_RETURN(SequenceId sequence, lane->cache_->CreateSequence());
    lane->sequences_.push_back(sequence);
  }
  lane->logits_.resize(static_cast<size_t>(model.vocab_size()) * static_cast<size_t>(batch));
  return lane;
}

Status DecodeLane::SetDepthOf(SequenceId* sequence, const SyntheticRows& rows, int64_t depth) {
  if (cache_->Report().fold.layers > 0) {
    // A depth is one prompt: all of it is folded, not what it has more than the depth before.
    VARVE_RETURN_IF_ERROR(cache_->Free(*sequence));
    VARVE_ASSIGN_OR_RETURN(*sequence, cache_->CreateSequence());
  }
  VARVE_ASSIGN_OR_RETURN(int64_t position, cache_->NextPosition(*sequence));
  if (position > depth) VARVE_RETURN_IF_ERROR(cache_->Truncate(*sequence, depth));
  VARVE_RETURN_IF_ERROR(rows.Extend(*cache_, *sequence, depth));
  return cache_->EndPrompt(*sequence);
}

Status DecodeLane::SetDepth(const SyntheticRows& rows, int64_t depth) {
  const uint64_t before = ResidentBytes();
  const StageTimes stages_before = cache_->Report().stages;
  for (SequenceId& sequence : sequences_) {
    VARVE_RETURN_IF_ERROR(SetDepthOf(&sequence, rows, depth));
  }
  cache_->WaitForPacking();
  stats_ = cache_->Report();
  AddStages(StagesBetween(stages_before, stats_.stages), &fill_stages_);
  const uint64_t after = ResidentBytes();
  if (after > before) resident_growth_ += after - before;
  return Status();
}

Result<double> DecodeLane::TimeSteps(DecoderRunner& runner, int steps,
                                     std::vector<int32_t>* tokens) {
  VARVE_ASSIGN_OR_RETURN(int64_t depth, cache_->NextPosition(sequences_[0]));
  tokens->clear();
  step_us_.clear();
  const size_t vocab = logits_.size() / sequences_.size();
  std::vector<DecodeEntry> entries;
  for (const SequenceId sequence : sequences_) {
    // Texts that differ, as those of several users do.
    const auto first = static_cast<int32_t>(1 + entries.size());
    entries.push_back({sequence, first % static_cast<int32_t>(vocab)});
  }
  const StageTimes before = cache_->Report().stages;
  Timer timer;
  for (int step = 0; step < steps; ++step) {
    VARVE_RETURN_IF_ERROR(runner.Decode(*cache_, entries, logits_.data()));
    for (size_t i = 0; i < entries.size(); ++i) {
      const float* row = logits_.data() + i * vocab;
      entries[i].token = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
      tokens->push_back(entries[i].token);
    }
    step_us_.push_back(timer.LapUs());
  }
  if (!std::all_of(logits_.begin(), logits_.end(), [](float x) { return std::isfinite(x); })) {
    return Internal(fmt::format("bench decode: plan {}: logits that are not finite", name_));
  }
  stats_ = cache_->Report();
  step_stages_ = StagesBetween(before, stats_.stages);
  for (const SequenceId sequence : sequences_) {
    VARVE_RETURN_IF_ERROR(cache_->Truncate(sequence, depth));
  }
  return std::accumulate(step_us_.begin(), step_us_.end(), 0.0) / steps;
}

}  // namespace varve::cli
