#include "serve/engine/running_request.h"

#include <algorithm>
#include <utility>

#include "serve/engine/token_logprobs.h"

namespace varve::serve {
namespace {

constexpr float kNever = -1e30f;  // a logit

int64_t LimitOf(const CompletionRequest& request, int64_t context) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_tokens < 0 || request.max_tokens > context - prompt) return context;
  return prompt + request.max_tokens;
}

}  // namespace

RunningRequest::RunningRequest(QueuedRequest queued, int slot, const Tokenizer& tokenizer,
                               int64_t context)
    : queued_(std::move(queued)),
      slot_(slot),
      tokenizer_(tokenizer),
      limit_(LimitOf(queued_.request, context)),
      tokens_(queued_.request.prompt),
      sampler_(queued_.request.sampler),
      edits_(queued_.request.edits),
      text_(tokenizer),
      stop_(queued_.request.stops) {
  times_.queue_us = queued_.since_arrival.us();
  for (const int32_t token : tokens_) sampler_.Observe(token);
  for (int32_t id = 0; queued_.request.ignore_end && id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsEnd(id)) never_.push_back(static_cast<size_t>(id));
  }
  if (queued_.request.is_turn) return;
  // A continuation is no beginning: what a tokenizer puts before a text is not wanted.
  for (const int32_t token : tokens_) text_.Next(token);
}

void RunningRequest::Take(std::span<float> logits) {
  if (generated_ == 0) {
    times_.prompt_us = since_begin_.us();
    since_first_.Restart();
  }
  if (static_cast<int64_t>(tokens_.size()) >= limit_) return End(FinishReason::kLength);
  AnswerToken token;
  const CompletionRequest& request = queued_.request;
  std::vector<float> before;
  if (request.num_logprobs >= 0) before.assign(logits.begin(), logits.end());
  edits_.Apply(logits);
  for (const size_t id : never_) {
    if (id < logits.size()) logits[id] = kNever;
  }
  const Result<int32_t> drawn = sampler_.Sample(logits);
  if (!drawn.ok()) return End(FinishReason::kError, drawn.status());
  token.token = *drawn;
  if (tokenizer_.IsEnd(token.token)) return End(FinishReason::kEnd);
  if (!before.empty()) token = LogprobsOf(before, token.token, request.num_logprobs);
  edits_.Observe(token.token);
  tokens_.push_back(token.token);
  ++generated_;
  Send(token);
  if (stop_.stopped()) return End(FinishReason::kStopText);
  if (static_cast<int64_t>(tokens_.size()) >= limit_) End(FinishReason::kLength);
}

void RunningRequest::Send(const AnswerToken& token) {
  AnswerEvent event{.choice = queued_.request.choice,
                    .text = stop_.Next(text_.Next(token.token)),
                    .token = token,
                    .end = std::nullopt};
  queued_.channel->Push(std::move(event));
}

void RunningRequest::End(FinishReason reason, const Status& error) {
  has_ended_ = true;
  has_failed_ = !error.ok();
  AnswerEvent event{.choice = queued_.request.choice, .text = {}, .token = {}, .end = AnswerEnd{}};
  if (reason != FinishReason::kStopText) {
    // A stop text may end in the very last bytes.
    event.text = stop_.Next(text_.Finish());
    event.text += stop_.Finish();
  }
  if (generated_ > 0) times_.decode_us = since_first_.us();
  *event.end = {.reason = reason,
                .stop_text = stop_.stopped() ? stop_.found() : "",
                .error = error,
                .prompt_tokens = prompt_tokens(),
                .cached_tokens = cached_tokens,
                .tokens = generated_,
                .slot = slot_,
                .times = times_};
  queued_.channel->Push(std::move(event));
}

}  // namespace varve::serve
