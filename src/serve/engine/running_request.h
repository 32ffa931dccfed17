// RunningRequest: a request that has a slot: where its prompt stands, what has been generated, and
// the text that comes of it. It knows the rules by which an answer ends; steps of the model are the
// engine's (batch_engine.h). One thread.

#ifndef VARVE_SERVE_ENGINE_RUNNING_REQUEST_H_
#define VARVE_SERVE_ENGINE_RUNNING_REQUEST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/timer.h"
#include "runtime/sampler.h"
#include "runtime/stop_text.h"
#include "runtime/tokenizer/tokenizer.h"
#include "serve/engine/answer_channel.h"
#include "serve/engine/completion_request.h"
#include "serve/engine/logit_edits.h"
#include "serve/prefix/prefix_cache.h"
#include "serve/prefix/prefix_tiers.h"
#include "varve/cache.h"

namespace varve::serve {

// A request on its way to a slot.
struct QueuedRequest {
  CompletionRequest request;
  std::shared_ptr<AnswerChannel> channel;
  uint64_t arrival = 0;
  Timer since_arrival = {};
  std::vector<PageKey> keys = {};  // of the prompt's full pages
  PrefixFetch fetch = {};          // of those that are not in memory
  bool is_crowded = false;         // it is read at the cost of others (CrowdedReads)
};

class RunningRequest {
 public:
  // `context` is how many positions a sequence may take.
  RunningRequest(QueuedRequest queued, int slot, const Tokenizer& tokenizer, int64_t context);

  const CompletionRequest& request() const { return queued_.request; }
  const QueuedRequest& queued() const { return queued_; }
  int slot() const { return slot_; }

  // --- its sequence; set by the engine ---
  SequenceId sequence;
  PrefixNode* pin = nullptr;
  int64_t cached_tokens = 0;  // of the prompt, from the prefix cache or its tiers
  size_t pages_in_tiers = 0;  // of its beginning: they need not be handed over
  int64_t fed = 0;            // tokens in the sequence
  double reading_s = 0;       // in steps that read its prompt

  // Prompt and what has been generated; the last one may not be fed yet.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t prompt_tokens() const { return static_cast<int64_t>(queued_.request.prompt.size()); }
  bool is_reading() const { return !has_ended_ && fed < prompt_tokens(); }
  bool is_writing() const { return !has_ended_ && fed >= prompt_tokens(); }
  bool has_ended() const { return has_ended_; }
  bool has_failed() const { return has_failed_; }
  // Tokens that its sequence can come to have at most.
  int64_t limit() const { return limit_; }

  // Draws the next token from logits [vocab], which are changed, and tells the client.
  void Take(std::span<float> logits);
  // Ends it and tells the client.
  void End(FinishReason reason, const Status& error = Status());

 private:
  void Send(const AnswerToken& token);

  QueuedRequest queued_;
  int slot_;
  const Tokenizer& tokenizer_;
  int64_t limit_;
  std::vector<int32_t> tokens_;
  Sampler sampler_;
  LogitEdits edits_;
  std::vector<size_t> never_;  // ids of ends, where they are to be ignored
  TextStream text_;
  StopText stop_;
  bool has_ended_ = false;
  bool has_failed_ = false;
  AnswerTimes times_;
  Timer since_begin_;
  Timer since_first_;
  int64_t generated_ = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_RUNNING_REQUEST_H_
