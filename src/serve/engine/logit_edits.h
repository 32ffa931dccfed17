// LogitEdits: what OpenAI's API does to logits before a token is drawn: logit_bias,
// presence_penalty and frequency_penalty. The sampler (runtime/sampler.h) does the rest. Counts
// generated tokens alone, as that API does. One thread.

#ifndef VARVE_SERVE_ENGINE_LOGIT_EDITS_H_
#define VARVE_SERVE_ENGINE_LOGIT_EDITS_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>

namespace varve::serve {

struct LogitEditOptions {
  std::map<int32_t, float> bias;  // added; ids beyond the vocabulary are ignored
  float presence_penalty = 0;     // taken off once from every token that was generated,
  float frequency_penalty = 0;    // and this once for each time
};

class LogitEdits {
 public:
  explicit LogitEdits(LogitEditOptions options) : options_(std::move(options)) {}

  void Observe(int32_t token) { ++counts_[token]; }
  void Apply(std::span<float> logits) const;

 private:
  LogitEditOptions options_;
  std::map<int32_t, int> counts_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_LOGIT_EDITS_H_
