// Sampler: the next token from logits. Deterministic: the same options, seed and logits give the
// same token on every machine and with any number of threads. Not thread-safe; keeps the tokens
// that the repetition penalty looks back on.
//
// Order, as users of llama.cpp expect it: repetition penalty, then top_k, top_p, min_p on the
// distribution at temperature 1, and temperature last, on what is left. Greedy takes the best logit
// after the penalty and draws no random number. The penalty divides positive logits and multiplies
// negative ones, once per token, however often it occurred.

#ifndef VARVE_RUNTIME_SAMPLER_H_
#define VARVE_RUNTIME_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
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
  // Chooses and observes. Logits that are not finite are never chosen; ties go to the lowest id.
  // kDataLoss if no logit is finite.
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  void FillCandidates(std::span<const float> logits);
  void SortBest(size_t count);
  void KeepTopP(float best);
  void KeepMinP(float best);
  int32_t Draw(float best);

  SamplerOptions options_;
  SplitMix64 random_;
  std::vector<int32_t> recent_;  // ring of repetition_window tokens
  size_t recent_next_ = 0;
  std::vector<std::pair<float, int32_t>> candidates_;  // logit, id
  std::vector<uint64_t> weights_;                      // of candidates_, see sampler_weights.h
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SAMPLER_H_
