// Sampler: the next token from logits. Deterministic: the same options, seed and logits give the
// same token on every machine and with any number of threads. Not thread-safe; keeps the tokens
// that the repetition penalty looks back on.

#ifndef VARVE_RUNTIME_SAMPLER_H_
#define VARVE_RUNTIME_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "varve/status.h"

namespace varve {

struct SamplerOptions {
  float temperature = 0.0f;         // 0: greedy
  int top_k = 0;                    // 0: all
  float top_p = 1.0f;               // smallest set with this mass; 1: all
  float min_p = 0.0f;               // at least this part of the best token's probability
  float repetition_penalty = 1.0f;  // > 1: tokens of the last repetition_window tokens weigh less
  int repetition_window = 64;
  uint64_t seed = 0;
};

// Names the option, its value and its range.
Status CheckSamplerOptions(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // Tells the sampler of a token that was not sampled by it (the prompt).
  void Observe(int32_t token);
  // Chooses and observes. NaN logits are never chosen; ties go to the lowest id. kDataLoss if no
  // logit is finite.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  SamplerOptions options_;
  uint64_t random_state_;
  std::vector<int32_t> recent_;  // ring of repetition_window tokens
  size_t recent_next_ = 0;
  std::vector<std::pair<float, int32_t>> candidates_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SAMPLER_H_
