#include "runtime/whisper/speech_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/timer.h"
#include "kernels/content_hash.h"
#include "runtime/slab_reserve.h"
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

std::shared_ptr<const EncodedWindows::Window> EncodedWindows::Find(uint64_t hash) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, window] : windows_) {
    if (key == hash) return window;
  }
  return nullptr;
}

void EncodedWindows::Add(uint64_t hash, std::shared_ptr<const Window> window) {
  const std::lock_guard lock(mutex_);
  windows_.emplace_back(hash, std::move(window));
  if (windows_.size() > max_windows_) windows_.pop_front();
}

SpeechRunner::SpeechRunner(std::shared_ptr<const WhisperModel> model, Executor& executor,
                           ProductPrecision precision)
    : model_(model), executor_(executor), decoder_(std::move(model), executor, precision) {}

Result<std::unique_ptr<SpeechRunner>> SpeechRunner::Create(
    std::shared_ptr<const WhisperModel> model, Executor& executor, SpeechOptions options) {
  if (options.pool == nullptr) options.pool = MakeReservingPool(kSpeechReserveBytes);
  std::unique_ptr<SpeechRunner> runner(new SpeechRunner(model, executor, options.precision));
  runner->encoded_ = options.encoded;
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
  // Scratch, not a cache: its slabs are its own and stay for the next window.
  VARVE_ASSIGN_OR_RETURN(runner->encoder_,
                         WhisperEncoder::Create(model, executor, options.precision,
                                                MakeReservingPool(kSpeechReserveBytes)));
  return runner;
}

Result<std::shared_ptr<const EncodedWindows::Window>> SpeechRunner::RunEncoder(const float* mel,
                                                                               ptrdiff_t stride,
                                                                               uint64_t hash) {
  if (encoded_ != nullptr) {
    if (auto found = encoded_->Find(hash); found != nullptr) {
      ++stats_.windows_shared;
      stats_.shared_us += found->encode_us;
      return found;
    }
  }
  const WhisperConfig& config = model_->config();
  const Timer timer;
  auto window = std::make_shared<EncodedWindows::Window>();
  window->rows.resize(static_cast<size_t>(config.audio_ctx) * config.audio_state);
  VARVE_RETURN_IF_ERROR(encoder_->Run(mel, stride, window->rows.data()));
  window->encode_us = timer.us();
  ++stats_.windows_encoded;
  stats_.encode_us += window->encode_us;
  if (encoded_ != nullptr) encoded_->Add(hash, window);
  return std::shared_ptr<const EncodedWindows::Window>(std::move(window));
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
  // First the room, then who takes it, the encoder included.
  while (windows_.size() >= max_windows_) {
    VARVE_RETURN_IF_ERROR(cross_->Free(windows_.back().sequence));
    windows_.pop_back();
  }
  VARVE_ASSIGN_OR_RETURN(const auto encoded, RunEncoder(mel, stride, hash));
  const Timer timer;
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence,
                         decoder_.AppendWindow(*cross_, encoded->rows.data()));
  windows_.push_front({hash, sequence});
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

Status SpeechRunner::Observe(SequenceId window, std::span<const int32_t> tokens,
                             WhisperObserver& observer) {
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence, self_->CreateSequence());
  const StepEntry entry{sequence, static_cast<int>(tokens.size())};
  const Status run = decoder_.Run({.self = self_.get(),
                                   .entries = {&entry, 1},
                                   .tokens = tokens,
                                   .cross = cross_.get(),
                                   .window = window,
                                   .observer = &observer});
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
  const Plan self = SelfPlan(plan);
  VARVE_ASSIGN_OR_RETURN(const PlanCost prompt_cost,
                         EstimatePlan(self, shape, {.assumed = true}, shared));
  // A page more: each beam has its own copy of the one in which the beams part.
  VARVE_ASSIGN_OR_RETURN(const PlanCost beam_cost,
                         EstimatePlan(self, shape, {.assumed = true}, own + self.PageTokens()));
  return cross.bytes + prompt_cost.bytes + beam_cost.bytes * static_cast<uint64_t>(beams);
}

}  // namespace varve
