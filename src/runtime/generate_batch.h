// GenerateBatch: many prompts, some of them at a time, in one cache.
//
// A step decodes a token of every sequence that is under way, so that the weights are read once for
// all. A prompt begins as soon as there is a place: when another one ends, or, where the cache has
// a cap (max_bytes), when there is room for it. Prompts begin in their order and end as they like.
//
// With up to LinearLayers::kMaxFewTokens under way a prompt's tokens are those that Generate gives
// for it alone. Products of more tokens at once round otherwise, so that a text may take another
// turn.

#ifndef VARVE_RUNTIME_GENERATE_BATCH_H_
#define VARVE_RUNTIME_GENERATE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/generate.h"
#include "runtime/model/decoder_model.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

// What is in the cache between two steps.
struct BatchMoment {
  int sequences = 0;   // under way
  int64_t tokens = 0;  // fed to them, prompts included
  size_t done = 0;     // prompts that have ended
};

struct BatchCallbacks {
  // After each step, and after each prompt that was read. False ends the batch: what is under way
  // stops with kStopped, what has not begun has no result.
  std::function<bool(const BatchMoment&)> on_step;
  // A prompt has ended.
  std::function<void(size_t index, const Generation& generation)> on_done;
};

// `options.history` is not used. At most `max_together` (> 0) prompts are under way. All prompts
// are checked before the first begins: an error names "prompt N". On an error the cache has no
// sequence of the batch any more.
Status GenerateBatch(DecoderRunner& runner, Cache& cache,
                     std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                     int max_together, const BatchCallbacks& callbacks);

}  // namespace varve

#endif  // VARVE_RUNTIME_GENERATE_BATCH_H_
