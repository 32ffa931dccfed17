#include "runtime/whisper/speech_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/timer.h"
#include "kernels/content_hash.h"
#include "runtime/whisper/speech_plans.h"
#include "varve/plan_estimate.h"

namespace varve {
namespace {

CacheShape SpeechShape(const WhisperConfig& config) {
  return {.num_layers = config.text_layers,
          .num_kv_heads = config.text_heads,
          .group_size = 1,
          .key_dim = config.text_head_dim(),
          .value_dim = config.text_head_dim()};
}

}  // namespace

SpeechRunner::SpeechRunner(std::shared_ptr<const WhisperModel> model, Executor& executor,
                           ProductPrecision precision)
    : model_(model), executor_(executor), decoder_(std::move(model), executor, precision) {}

Result<std::unique_ptr<SpeechRunner>> SpeechRunner::Create(
    std::shared_ptr<const WhisperModel> model, Executor& executor, SpeechOptions options) {
  if (options.pool == nullptr) options.pool = MakePagePool(0);
  std::unique_ptr<SpeechRunner> runner(new SpeechRunner(model, executor, options.precision));
  runner->max_windows_ = static_cast<size_t>(std::max(1, options.max_windows));
  const auto make = [&](const Plan& plan) {
    CacheOptions made;
    made.plan = plan;
    made.model_fingerprint = model->fingerprint();
    made.executor = &executor;
    made.pool = options.pool;
    return Cache::Create(SpeechShape(model->config()), std::move(made));
  };
  VARVE_ASSIGN_OR_RETURN(runner->self_, make(SelfPlan(options.plan)));
  VARVE_ASSIGN_OR_RETURN(runner->cross_, make(CrossPlan(options.plan)));
  VARVE_ASSIGN_OR_RETURN(runner->encoder_,
                         WhisperEncoder::Create(model, executor, options.precision, options.pool));
  return runner;
}

Result<SequenceId> SpeechRunner::Encode(const float* mel, ptrdiff_t stride) {
  const WhisperConfig& config = model_->config();
  const size_t frames = 2 * static_cast<size_t>(config.audio_ctx);
  uint64_t hash = HashPieces(mel, frames * sizeof(float), stride * sizeof(float), config.mels);
  const uint64_t fingerprint = model_->fingerprint();
  hash = HashBytes(&fingerprint, sizeof(fingerprint), hash);
  const auto found = std::find_if(windows_.begin(), windows_.end(),
                                  [&](const Window& window) { return window.hash == hash; });
  if (found != windows_.end()) {
    windows_.splice(windows_.begin(), windows_, found);
    ++stats_.windows_reused;
    return windows_.front().sequence;
  }
  const Timer timer;
  encoded_.resize(static_cast<size_t>(config.audio_ctx) * config.audio_state);
  VARVE_RETURN_IF_ERROR(encoder_->Run(mel, stride, encoded_.data()));
  // First the room, then who takes it.
  while (windows_.size() >= max_windows_) {
    VARVE_RETURN_IF_ERROR(cross_->Free(windows_.back().sequence));
    windows_.pop_back();
  }
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence,
                         decoder_.AppendWindow(*cross_, encoded_.data()));
  windows_.push_front({hash, sequence});
  ++stats_.windows_encoded;
  stats_.encode_us += timer.us();
  stats_.cross_bytes = std::max(stats_.cross_bytes, cross_->Stats().bytes_used);
  return sequence;
}

Status SpeechRunner::Decode(SequenceId window, std::span<const StepEntry> entries,
                            std::span<const int32_t> tokens, std::span<const int> wanted,
                            float* logits) {
  const Timer timer;
  VARVE_RETURN_IF_ERROR(decoder_.Run({.self = self_.get(),
                                      .entries = entries,
                                      .tokens = tokens,
                                      .cross = cross_.get(),
                                      .window = window,
                                      .wanted = wanted,
                                      .logits = logits}));
  ++stats_.steps;
  stats_.tokens += tokens.size();
  stats_.decode_us += timer.us();
  stats_.self_bytes = std::max(stats_.self_bytes, self_->Stats().bytes_used);
  return Status();
}

Status SpeechRunner::ReadCrossQueries(
    SequenceId window, std::span<const int32_t> tokens,
    const std::function<void(int layer, const float* queries)>& read) {
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence, self_->CreateSequence());
  const StepEntry entry{sequence, static_cast<int>(tokens.size())};
  const Status run = decoder_.Run({.self = self_.get(),
                                   .entries = {&entry, 1},
                                   .tokens = tokens,
                                   .cross = cross_.get(),
                                   .window = window,
                                   .on_cross_queries = read});
  const Status freed = self_->Free(sequence);
  return run.ok() ? freed : run;
}

Result<uint64_t> EstimateSpeechBytes(const WhisperConfig& config, const Plan& plan, int beams,
                                     double seconds, int prompt_tokens) {
  constexpr double kTokensPerSecond = 10 * 1.2;
  const CacheShape shape = SpeechShape(config);
  const double window_s = std::min(seconds, config.audio_ctx / 50.0);
  const auto text = static_cast<int64_t>(std::ceil(window_s * kTokensPerSecond));
  // The text of earlier windows is the prompt of later ones.
  const int64_t half = config.text_ctx / 2;
  const int64_t prompt = seconds > config.audio_ctx / 50.0 ? half : prompt_tokens;
  constexpr int64_t kStartTokens = 4;
  const int64_t shared = std::min(prompt, half) + kStartTokens;
  const int64_t own = std::min(text, half);
  VARVE_ASSIGN_OR_RETURN(const PlanCost cross,
                         EstimatePlan(CrossPlan(plan), shape, {.assumed = true}, config.audio_ctx));
  VARVE_ASSIGN_OR_RETURN(const PlanCost one,
                         EstimatePlan(SelfPlan(plan), shape, {.assumed = true}, shared));
  VARVE_ASSIGN_OR_RETURN(const PlanCost all,
                         EstimatePlan(SelfPlan(plan), shape, {.assumed = true}, shared + own));
  return cross.bytes + one.bytes + (all.bytes - one.bytes) * static_cast<uint64_t>(beams);
}

}  // namespace varve
