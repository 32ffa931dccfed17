// The log-probabilities that clients ask for: of the token that was drawn and of the best ones,
// from the model's own logits, before temperature and whatever else the sampler does.

#ifndef VARVE_SERVE_ENGINE_TOKEN_LOGPROBS_H_
#define VARVE_SERVE_ENGINE_TOKEN_LOGPROBS_H_

#include <cstdint>
#include <span>

#include "serve/engine/completion_request.h"

namespace varve::serve {

// `num_best` of the best, ties in the order of ids. Logits that are not finite have none: they are
// left out, and `token`'s would be the lowest float.
AnswerToken LogprobsOf(std::span<const float> logits, int32_t token, int num_best);

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_TOKEN_LOGPROBS_H_
