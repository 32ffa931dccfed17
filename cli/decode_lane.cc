#include "cli/decode_lane.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/bench_workload.h"
#include "cli/stage_report.h"

namespace varve::cli {

SyntheticRows::SyntheticRows(const CacheShape& shape, uint64_t seed, Executor& executor)
    : key_floats_(static_cast<size_t>(shape.num_kv_heads) * static_cast<size_t>(shape.key_dim)),
      value_floats_(static_cast<size_t>(shape.num_kv_heads) *
                    static_cast<size_t>(shape.value_dim)) {
  constexpr size_t kRows = kPeriod + kMaxStep;
  keys_.resize(kRows * key_floats_);
  values_.resize(kRows * value_floats_);
  FillKeys(keys_, seed, executor);
  FillGaussian(values_, seed + 1, executor);
  // The rows behind the period are those of its beginning: a step never wraps.
  std::copy_n(keys_.begin(), kMaxStep * key_floats_, keys_.begin() + kPeriod * key_floats_);
  std::copy_n(values_.begin(), kMaxStep * value_floats_, values_.begin() + kPeriod * value_floats_);
}

Status SyntheticRows::Extend(Cache& cache, SequenceId sequence, int64_t depth) const {
  Result<int64_t> position = cache.NextPosition(sequence);
  if (!position.ok()) return position.status();
  for (int64_t done = *position; done < depth;) {
    Result<int> most = cache.MaxStepTokens(sequence);
    if (!most.ok()) return most.status();
    const auto tokens = static_cast<int>(std::min({int64_t{*most}, kMaxStep, depth - done}));
    const StepEntry entry{sequence, tokens};
    VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < cache.shape().num_layers; ++layer) {
      const auto row = static_cast<size_t>((done + 131 * layer) % kPeriod);
      VARVE_RETURN_IF_ERROR(cache.Append(layer, sequence,
                                         {keys_.data() + row * key_floats_, tokens, 0, 0},
                                         {values_.data() + row * value_floats_, tokens, 0, 0}));
    }
    VARVE_RETURN_IF_ERROR(cache.EndStep());
    done += tokens;
  }
  return Status();
}

Result<std::unique_ptr<DecodeLane>> DecodeLane::Make(std::string name, const Plan& plan,
                                                     const LlamaModel& model, Executor& executor,
                                                     bool time_stages) {
  CacheOptions options;
  options.plan = plan;
  options.executor = &executor;
  options.time_stages = time_stages;
  Result<std::unique_ptr<Cache>> cache = Cache::Create(model.cache_shape(), std::move(options));
  if (!cache.ok()) {
    return Status(cache.status().code(),
                  fmt::format("--kv \"{}\": {}", name, cache.status().message()));
  }
  Result<SequenceId> sequence = (*cache)->CreateSequence();
  if (!sequence.ok()) return sequence.status();
  std::unique_ptr<DecodeLane> lane(new DecodeLane);
  lane->name_ = std::move(name);
  lane->cache_ = std::move(*cache);
  lane->sequence_ = *sequence;
  lane->logits_.resize(static_cast<size_t>(model.config().vocab_size));
  return lane;
}

Status DecodeLane::SetDepth(const SyntheticRows& rows, int64_t depth) {
  const uint64_t before = ResidentBytes();
  Result<int64_t> position = cache_->NextPosition(sequence_);
  if (!position.ok()) return position.status();
  if (*position > depth) VARVE_RETURN_IF_ERROR(cache_->Truncate(sequence_, depth));
  VARVE_RETURN_IF_ERROR(rows.Extend(*cache_, sequence_, depth));
  VARVE_RETURN_IF_ERROR(cache_->EndPrompt(sequence_));
  cache_->WaitForPacking();
  stats_ = cache_->Stats();
  const uint64_t after = ResidentBytes();
  if (after > before) resident_growth_ += after - before;
  return Status();
}

Result<double> DecodeLane::TimeSteps(LlamaRunner& runner, int steps, std::vector<int32_t>* tokens) {
  Result<int64_t> depth = cache_->NextPosition(sequence_);
  if (!depth.ok()) return depth.status();
  tokens->clear();
  DecodeEntry entry{sequence_, 1};
  const StageTimes before = cache_->Stats().stages;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    VARVE_RETURN_IF_ERROR(runner.Decode(*cache_, {&entry, 1}, logits_.data()));
    const auto best = std::max_element(logits_.begin(), logits_.end());
    entry.token = static_cast<int32_t>(best - logits_.begin());
    tokens->push_back(entry.token);
  }
  const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
  if (!std::all_of(logits_.begin(), logits_.end(), [](float x) { return std::isfinite(x); })) {
    return Internal(fmt::format("bench decode: plan {}: logits that are not finite", name_));
  }
  stats_ = cache_->Stats();
  step_stages_ = StagesBetween(before, stats_.stages);
  VARVE_RETURN_IF_ERROR(cache_->Truncate(sequence_, *depth));
  return us.count() / steps;
}

}  // namespace varve::cli
