// Generate: a prompt goes in, tokens come out, one at a time.
//
// The loop that `varve run` and the comparison of plans share: feeds the prompt to a sequence of a
// cache, samples, feeds back what was sampled, until something says stop. It knows token ids only;
// text is the caller's (TextStream). A second call with the same sequence goes on behind the first:
// that is how a conversation keeps its cache.
//
// Deterministic: the same prompt, plan and options give the same tokens with any number of threads,
// and a run with a smaller max_tokens gives a prefix of a longer one.

#ifndef VARVE_RUNTIME_GENERATE_H_
#define VARVE_RUNTIME_GENERATE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/decoder_model.h"
#include "runtime/sampler.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

enum class StopReason {
  kEndToken,   // the model ended its text
  kMaxTokens,  // as many tokens as were asked for
  kContext,    // no position left
  kStopped,    // the callback said so
  kFailed,     // a step failed: Generation::error
};
// "end", "max_tokens", "context", "stopped", "failed"
const char* StopReasonName(StopReason reason);

struct GenerateOptions {
  int64_t max_tokens = 256;  // >= 0; 0 feeds the prompt and stops
  // Positions that the sequence may take in all; 0: the model's context.
  int64_t max_context = 0;
  SamplerOptions sampler;
  // What the sequence holds before the prompt, for the repetition penalty alone.
  std::span<const int32_t> history;
  // True for the tokens that end a text; empty: none does.
  std::function<bool(int32_t)> is_end;
};

struct GenerateCallbacks {
  // After each step of the prompt, with the tokens done so far; false stops.
  std::function<bool(int64_t)> on_prompt;
  // With each token, before it is fed back; false stops after this one. Not called for end tokens.
  std::function<bool(int32_t)> on_token;
};

struct Generation {
  StopReason stop = StopReason::kMaxTokens;
  Status error;  // of the step that failed: no memory left under the cap, say. The rest is valid
  // What was sampled, without the end token. The last one is not in the cache: nothing came after
  // it that would have needed it.
  std::vector<int32_t> tokens;
  int64_t prompt_tokens = 0;  // fed
  double prompt_us = 0;       // until the prompt's logits were there
  int64_t decode_steps = 0;   // tokens fed back; the first token needs none
  double decode_us = 0;       // of those steps, sampling included

  double prompt_tokens_per_s() const;  // 0 where nothing was fed
  double decode_tokens_per_s() const;
};

// That a prompt has tokens, all of the vocabulary, and fits into the context behind `position`.
Status CheckPrompt(std::span<const int32_t> prompt, int64_t position, int64_t context,
                   int vocab_size);

// Feeds `prompt` (at least one token) behind what the sequence holds and generates. Errors: an
// empty prompt, a token outside the vocabulary, a prompt that does not fit into the context
// ("prompt: 5000 tokens at position 0 > context 4096"), sampler options out of range. A step that
// fails later ends the generation, with Generation::error: the cache, and the result, keep what was
// fed before it.
Result<Generation> Generate(DecoderRunner& runner, Cache& cache, SequenceId sequence,
                            std::span<const int32_t> prompt, const GenerateOptions& options,
                            const GenerateCallbacks& callbacks);

}  // namespace varve

#endif  // VARVE_RUNTIME_GENERATE_H_
