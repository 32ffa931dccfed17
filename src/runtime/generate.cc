#include "runtime/generate.h"

#include <utility>

#include <fmt/format.h>

#include "base/timer.h"

namespace varve {
namespace {

double PerSecond(int64_t count, double us) {
  return us > 0 ? static_cast<double>(count) * 1e6 / us : 0.0;
}

// One call of Generate: the prompt, then the loop.
class GenerateRun {
 public:
  GenerateRun(DecoderRunner& runner, Cache& cache, SequenceId sequence,
              const GenerateOptions& options, const GenerateCallbacks& callbacks)
      : runner_(runner),
        cache_(cache),
        sequence_(sequence),
        options_(options),
        callbacks_(callbacks),
        context_(options.max_context > 0 ? options.max_context : runner.model().context()),
        sampler_(options.sampler),
        logits_(static_cast<size_t>(runner.model().vocab_size())) {}

  int64_t context() const { return context_; }
  Generation Run(std::span<const int32_t> prompt);

 private:
  // False where the callback stopped it: there are no logits then, and nothing to go on with.
  Result<bool> FeedPrompt(std::span<const int32_t> prompt);
  Status Decode();
  // Feeds the last token back. False where no position is left.
  Result<bool> FeedBack(int64_t position);

  DecoderRunner& runner_;
  Cache& cache_;
  SequenceId sequence_;
  const GenerateOptions& options_;
  const GenerateCallbacks& callbacks_;
  int64_t context_;
  Sampler sampler_;
  std::vector<float> logits_;  // [vocab_size]
  Generation result_;
};

Result<bool> GenerateRun::FeedPrompt(std::span<const int32_t> prompt) {
  bool is_stopped = false;
  const auto on_prompt = [&](int64_t done) {
    result_.prompt_tokens = done;
    is_stopped = callbacks_.on_prompt && !callbacks_.on_prompt(done);
    return !is_stopped;
  };
  const Timer timer;
  const Status fed =
      runner_.Forward(cache_, sequence_, prompt, Logits::kLast, logits_.data(), on_prompt);
  result_.prompt_us = timer.us();
  if (is_stopped) {
    result_.stop = StopReason::kStopped;
    return false;
  }
  if (!fed.ok()) return fed;
  result_.prompt_tokens = static_cast<int64_t>(prompt.size());
  VARVE_RETURN_IF_ERROR(cache_.EndPrompt(sequence_));
  for (const int32_t token : options_.history) sampler_.Observe(token);
  for (const int32_t token : prompt) sampler_.Observe(token);
  return true;
}

Result<bool> GenerateRun::FeedBack(int64_t position) {
  if (position >= context_) {
    result_.stop = StopReason::kContext;
    return false;
  }
  const DecodeEntry entry{sequence_, result_.tokens.back()};
  VARVE_RETURN_IF_ERROR(runner_.Decode(cache_, {&entry, 1}, logits_.data()));
  ++result_.decode_steps;
  return true;
}

Status GenerateRun::Decode() {
  // Folding may have restarted it.
  VARVE_ASSIGN_OR_RETURN(int64_t position, cache_.NextPosition(sequence_));
  const Timer timer;
  while (static_cast<int64_t>(result_.tokens.size()) < options_.max_tokens) {
    if (!result_.tokens.empty()) {
      VARVE_ASSIGN_OR_RETURN(const bool fed, FeedBack(position++));
      if (!fed) break;
      result_.decode_us = timer.us();
    }
    VARVE_ASSIGN_OR_RETURN(const int32_t token, sampler_.Sample(logits_));
    if (options_.is_end && options_.is_end(token)) {
      result_.stop = StopReason::kEndToken;
      break;
    }
    result_.tokens.push_back(token);
    if (callbacks_.on_token && !callbacks_.on_token(token)) {
      result_.stop = StopReason::kStopped;
      break;
    }
  }
  return {};
}

Generation GenerateRun::Run(std::span<const int32_t> prompt) {
  const Result<bool> goes_on = FeedPrompt(prompt);
  result_.error = goes_on.ok() && *goes_on ? Decode() : goes_on.status();
  if (!result_.error.ok()) result_.stop = StopReason::kFailed;
  return std::move(result_);
}

}  // namespace

Status CheckPrompt(std::span<const int32_t> prompt, int64_t position, int64_t context,
                   int vocab_size) {
  if (prompt.empty()) return InvalidArgument("prompt: no tokens");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < vocab_size) continue;
    return InvalidArgument(fmt::format(
        "prompt: token {} at index {} is outside the vocabulary of {}", prompt[i], i, vocab_size));
  }
  const auto count = static_cast<int64_t>(prompt.size());
  if (position > context || count > context - position) {
    return InvalidArgument(
        fmt::format("prompt: {} tokens at position {} > context {}", count, position, context));
  }
  return Status();
}

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContext:
      return "context";
    case StopReason::kStopped:
      return "stopped";
    case StopReason::kFailed:
      return "failed";
  }
  return "unknown";
}

double Generation::prompt_tokens_per_s() const { return PerSecond(prompt_tokens, prompt_us); }
double Generation::decode_tokens_per_s() const { return PerSecond(decode_steps, decode_us); }

Result<Generation> Generate(DecoderRunner& runner, Cache& cache, SequenceId sequence,
                            std::span<const int32_t> prompt, const GenerateOptions& options,
                            const GenerateCallbacks& callbacks) {
  VARVE_RETURN_IF_ERROR(CheckSamplerOptions(options.sampler));
  if (options.max_tokens < 0) {
    return InvalidArgument(fmt::format("max_tokens {} < 0", options.max_tokens));
  }
  GenerateRun run(runner, cache, sequence, options, callbacks);
  VARVE_ASSIGN_OR_RETURN(const int64_t begin, cache.NextPosition(sequence));
  VARVE_RETURN_IF_ERROR(CheckPrompt(prompt, begin, run.context(), runner.model().vocab_size()));
  VARVE_RETURN_IF_ERROR(cache.BeginPrompt(sequence));
  return run.Run(prompt);
}

}  // namespace varve
