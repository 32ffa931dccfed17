#include "serve/api/answer_format.h"

#include <algorithm>
#include <optional>

namespace varve::serve {

using nlohmann::ordered_json;

ordered_json BytesJson(std::string_view bytes) {
  ordered_json list = ordered_json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

ordered_json UsageJson(const std::vector<CollectedAnswer>& answers, size_t num_prompts) {
  const size_t per_prompt = std::max<size_t>(answers.size() / num_prompts, 1);
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::optional<AnswerEnd>& end = answers[i].end;
    if (!end) continue;
    tokens += end->tokens;
    if (i % per_prompt != 0) continue;
    prompt += end->prompt_tokens;
    cached += end->cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", tokens},
          {"total_tokens", prompt + tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

ordered_json TimingsJson(const AnswerEnd& end) {
  const auto per = [](double amount, double by) { return by > 0 ? amount / by : 0.0; };
  const auto prompt = static_cast<double>(end.prompt_tokens - end.cached_tokens);
  // The first token came with the prompt.
  const auto steps = static_cast<double>(end.tokens > 0 ? end.tokens - 1 : 0);
  const double prompt_ms = end.times.prompt_us / 1e3;
  const double decode_ms = end.times.decode_us / 1e3;
  return {{"cache_n", end.cached_tokens},
          {"prompt_n", end.prompt_tokens - end.cached_tokens},
          {"prompt_ms", prompt_ms},
          {"prompt_per_token_ms", per(prompt_ms, prompt)},
          {"prompt_per_second", per(prompt * 1e3, prompt_ms)},
          {"predicted_n", end.tokens},
          {"predicted_ms", decode_ms},
          {"predicted_per_token_ms", per(decode_ms, steps)},
          {"predicted_per_second", per(steps * 1e3, decode_ms)},
          {"queue_ms", end.times.queue_us / 1e3}};
}

const char* OpenAiFinish(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
    case FinishReason::kCancelled:
      return "error";
    default:
      return "stop";
  }
}

}  // namespace varve::serve
