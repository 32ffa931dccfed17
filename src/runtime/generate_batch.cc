#include "runtime/generate_batch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/timer.h"

namespace varve {
namespace {

// One prompt that is under way.
struct ActivePrompt {
  size_t index = 0;
  SequenceId sequence;
  Sampler sampler;
  int64_t position = 0;  // of the token that is fed next
  Timer since_prompt;
  bool has_ended = false;
  Generation result;
};

class BatchRun {
 public:
  BatchRun(DecoderRunner& runner, Cache& cache, std::span<const std::vector<int32_t>> prompts,
           const GenerateOptions& options, const BatchCallbacks& callbacks)
      : runner_(runner),
        cache_(cache),
        prompts_(prompts),
        options_(options),
        callbacks_(callbacks),
        context_(options.max_context > 0 ? options.max_context : runner.model().context()),
        vocab_(static_cast<size_t>(runner.model().vocab_size())) {}

  Status Check(int max_together) const;
  Status Run(size_t max_together);
  // Frees what an error has left.
  void FreeAll();

 private:
  // False where the cache has no room as long as others are under way.
  Result<bool> Begin(size_t index);
  Status ReadPrompt(ActivePrompt& active, std::span<const int32_t> prompt);
  Status Step();
  // Takes the next token of a sequence from its logits [vocab].
  Status Take(ActivePrompt& active, std::span<const float> logits);
  Status RemoveEnded();
  void Tell();

  DecoderRunner& runner_;
  Cache& cache_;
  std::span<const std::vector<int32_t>> prompts_;
  const GenerateOptions& options_;
  const BatchCallbacks& callbacks_;
  int64_t context_;
  size_t vocab_;
  std::vector<ActivePrompt> active_;
  std::vector<DecodeEntry> entries_;
  std::vector<float> logits_;  // [active_.size(), vocab]
  size_t done_ = 0;
  bool is_stopped_ = false;
};

Status BatchRun::Check(int max_together) const {
  VARVE_RETURN_IF_ERROR(CheckSamplerOptions(options_.sampler));
  if (options_.max_tokens < 0) {
    return InvalidArgument(fmt::format("max_tokens {} < 0", options_.max_tokens));
  }
  if (max_together <= 0) return InvalidArgument(fmt::format("max_together {} < 1", max_together));
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const Status checked = CheckPrompt(prompts_[i], 0, context_, static_cast<int>(vocab_));
    if (!checked.ok()) {
      return Status(checked.code(), fmt::format("prompt {}: {}", i, checked.message()));
    }
  }
  return Status();
}

void BatchRun::Tell() {
  BatchMoment moment;
  moment.sequences = static_cast<int>(active_.size());
  moment.done = done_;
  for (const ActivePrompt& active : active_) {
    moment.tokens += active.result.prompt_tokens + active.result.decode_steps;
  }
  if (callbacks_.on_step && !callbacks_.on_step(moment)) is_stopped_ = true;
}

Status BatchRun::ReadPrompt(ActivePrompt& active, std::span<const int32_t> prompt) {
  const Timer timer;
  logits_.resize(std::max(logits_.size(), vocab_));
  VARVE_RETURN_IF_ERROR(cache_.BeginPrompt(active.sequence));
  VARVE_RETURN_IF_ERROR(
      runner_.Forward(cache_, active.sequence, prompt, Logits::kLast, logits_.data()));
  active.result.prompt_us = timer.us();
  active.result.prompt_tokens = static_cast<int64_t>(prompt.size());
  VARVE_RETURN_IF_ERROR(cache_.EndPrompt(active.sequence));
  for (const int32_t token : prompt) active.sampler.Observe(token);
  // Folding may have restarted it.
  VARVE_ASSIGN_OR_RETURN(active.position, cache_.NextPosition(active.sequence));
  active.since_prompt.Restart();
  return Take(active, {logits_.data(), vocab_});
}

Result<bool> BatchRun::Begin(size_t index) {
  VARVE_ASSIGN_OR_RETURN(SequenceId sequence, cache_.CreateSequence());
  active_.push_back({index, sequence, Sampler(options_.sampler), 0, {}, false, {}});
  const Status read = ReadPrompt(active_.back(), prompts_[index]);
  if (read.ok()) return true;
  if (read.code() != StatusCode::kOutOfMemory || active_.size() == 1) return read;
  active_.pop_back();
  VARVE_RETURN_IF_ERROR(cache_.Free(sequence));
  return false;
}

Status BatchRun::Take(ActivePrompt& active, std::span<const float> logits) {
  Generation& result = active.result;
  active.has_ended = true;
  if (static_cast<int64_t>(result.tokens.size()) >= options_.max_tokens) return Status();
  VARVE_ASSIGN_OR_RETURN(const int32_t token, active.sampler.Sample(logits));
  if (options_.is_end && options_.is_end(token)) {
    result.stop = StopReason::kEndToken;
    return Status();
  }
  result.tokens.push_back(token);
  if (static_cast<int64_t>(result.tokens.size()) >= options_.max_tokens) return Status();
  if (active.position >= context_) {
    result.stop = StopReason::kContext;
    return Status();
  }
  active.has_ended = false;
  return Status();
}

Status BatchRun::Step() {
  entries_.clear();
  for (const ActivePrompt& active : active_) {
    entries_.push_back({active.sequence, active.result.tokens.back()});
  }
  logits_.resize(std::max(logits_.size(), active_.size() * vocab_));
  VARVE_RETURN_IF_ERROR(runner_.Decode(cache_, entries_, logits_.data()));
  for (size_t i = 0; i < active_.size(); ++i) {
    ActivePrompt& active = active_[i];
    ++active.position;
    ++active.result.decode_steps;
    VARVE_RETURN_IF_ERROR(Take(active, {logits_.data() + i * vocab_, vocab_}));
    active.result.decode_us = active.since_prompt.us();
  }
  return Status();
}

Status BatchRun::RemoveEnded() {
  for (ActivePrompt& active : active_) {
    if (!active.has_ended) continue;
    VARVE_RETURN_IF_ERROR(cache_.Free(active.sequence));
    ++done_;
    if (callbacks_.on_done) callbacks_.on_done(active.index, active.result);
  }
  std::erase_if(active_, [](const ActivePrompt& active) { return active.has_ended; });
  return Status();
}

Status BatchRun::Run(size_t max_together) {
  size_t next = 0;
  bool is_full = false;  // until a sequence ends
  while (!is_stopped_) {
    while (!is_stopped_ && !is_full && next < prompts_.size() && active_.size() < max_together) {
      VARVE_ASSIGN_OR_RETURN(const bool begun, Begin(next));
      is_full = !begun;
      if (!begun) break;
      ++next;
      Tell();
      VARVE_RETURN_IF_ERROR(RemoveEnded());
    }
    if (active_.empty() || is_stopped_) break;
    VARVE_RETURN_IF_ERROR(Step());
    Tell();
    const size_t before = active_.size();
    VARVE_RETURN_IF_ERROR(RemoveEnded());
    is_full = is_full && active_.size() == before;
  }
  for (ActivePrompt& active : active_) {
    active.has_ended = true;
    active.result.stop = StopReason::kStopped;
  }
  return RemoveEnded();
}

void BatchRun::FreeAll() {
  for (const ActivePrompt& active : active_) {
    // The error that brought us here is the one to tell.
    static_cast<void>(cache_.Free(active.sequence));
  }
}

}  // namespace

Status GenerateBatch(DecoderRunner& runner, Cache& cache,
                     std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                     int max_together, const BatchCallbacks& callbacks) {
  BatchRun run(runner, cache, prompts, options, callbacks);
  VARVE_RETURN_IF_ERROR(run.Check(max_together));
  Status status = run.Run(static_cast<size_t>(max_together));
  if (!status.ok()) run.FreeAll();
  return status;
}

}  // namespace varve
