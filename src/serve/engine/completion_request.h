// CompletionRequest: what a client wants, after its JSON has been read and checked, and
// AnswerEvent: what it gets. Token ids only; which words of which API they came from is forgotten
// here.

#ifndef VARVE_SERVE_ENGINE_COMPLETION_REQUEST_H_
#define VARVE_SERVE_ENGINE_COMPLETION_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/sampler.h"
#include "serve/engine/logit_edits.h"
#include "varve/status.h"

namespace varve::serve {

struct CompletionRequest {
  std::vector<int32_t> prompt;  // at least one, of the vocabulary
  int64_t max_tokens = -1;      // -1: as many as the context has room for
  SamplerOptions sampler;
  LogitEditOptions edits;
  std::vector<std::string> stops;
  bool ignore_end = false;   // the model's own ends are never drawn
  bool is_turn = false;      // the answer begins a text of its own (a chat), it continues none
  int num_logprobs = -1;     // -1: none; 0: of the token itself; n: of the n best, too
  bool reuse_prefix = true;  // false: every token is computed anew
  std::string tenant;        // pages are shared among requests of equal tenants alone
  int choice = 0;            // which of several answers to one request
  int fixed_slot = -1;       // the slot that it must have; -1: any
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct AnswerToken {
  int32_t token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> best;  // as many as were asked for, best first
};

enum class FinishReason { kEnd, kStopText, kLength, kCancelled, kError };

struct AnswerTimes {
  double queue_us = 0;   // until a slot was free
  double prompt_us = 0;  // reading the prompt, the steps of others in between included
  double decode_us = 0;  // from the first token to the last
};

// The last event of an answer.
struct AnswerEnd {
  FinishReason reason = FinishReason::kEnd;
  std::string stop_text;  // with kStopText
  Status error;           // with kError
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of those, that were not computed
  int64_t tokens = 0;         // generated
  int slot = -1;              // -1: it never had one
  AnswerTimes times;
};

struct AnswerEvent {
  int choice = 0;
  std::string text;  // what can be shown now; may be empty
  std::optional<AnswerToken> token;
  std::optional<AnswerEnd> end;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_COMPLETION_REQUEST_H_
