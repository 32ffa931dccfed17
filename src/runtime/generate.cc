#include "runtime/generate.h"

#include <fmt/format.h>

#include "base/timer.h"

namespace varve {
namespace {

double PerSecond(int64_t count, double us) {
  return us > 0 ? static_cast<double>(count) * 1e6 / us : 0.0;
}

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

}  // namespace

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
  }
  return "unknown";
}

double Generation::prompt_tokens_per_s() const { return PerSecond(prompt_tokens, prompt_us); }
double Generation::decode_tokens_per_s() const { return PerSecond(decode_steps, decode_us); }

Result<Generation> Generate(DecoderRunner& runner, Cache& cache, SequenceId sequence,
                            std::span<const int32_t> prompt, const GenerateOptions& options,
                            const GenerateCallbacks& callbacks) {
  const DecoderModel& model = runner.model();
  const int64_t context = options.max_context > 0 ? options.max_context : model.context();
  VARVE_RETURN_IF_ERROR(CheckSamplerOptions(options.sampler));
  if (options.max_tokens < 0) {
    return InvalidArgument(fmt::format("max_tokens {} < 0", options.max_tokens));
  }
  VARVE_ASSIGN_OR_RETURN(int64_t begin, cache.NextPosition(sequence));
  VARVE_RETURN_IF_ERROR(CheckPrompt(prompt, begin, context, model.vocab_size()));
  VARVE_RETURN_IF_ERROR(cache.BeginPrompt(sequence));

  Generation result;
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));  // [vocab_size]
  bool is_stopped = false;
  const auto on_prompt = [&](int64_t done) {
    result.prompt_tokens = done;
    is_stopped = callbacks.on_prompt && !callbacks.on_prompt(done);
    return !is_stopped;
  };
  const Timer prompt_timer;
  const Status fed =
      runner.Forward(cache, sequence, prompt, Logits::kLast, logits.data(), on_prompt);
  result.prompt_us = prompt_timer.us();
  if (is_stopped) {
    result.stop = StopReason::kStopped;
    return result;
  }
  if (!fed.ok()) return fed;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  VARVE_RETURN_IF_ERROR(cache.EndPrompt(sequence));

  Sampler sampler(options.sampler);
  for (const int32_t token : options.history) sampler.Observe(token);
  for (const int32_t token : prompt) sampler.Observe(token);
  int64_t position = *cache.NextPosition(sequence);  // folding may have restarted it
  const Timer decode_timer;
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    if (!result.tokens.empty()) {
      if (position >= context) {
        result.stop = StopReason::kContext;
        break;
      }
      const DecodeEntry entry{sequence, result.tokens.back()};
      VARVE_RETURN_IF_ERROR(runner.Decode(cache, {&entry, 1}, logits.data()));
      ++position;
      ++result.decode_steps;
      result.decode_us = decode_timer.us();
    }
    VARVE_ASSIGN_OR_RETURN(int32_t token, sampler.Sample(logits));
    if (options.is_end && options.is_end(token)) {
      result.stop = StopReason::kEndToken;
      break;
    }
    result.tokens.push_back(token);
    if (callbacks.on_token && !callbacks.on_token(token)) {
      result.stop = StopReason::kStopped;
      break;
    }
  }
  return result;
}

}  // namespace varve
