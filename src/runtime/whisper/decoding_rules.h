// Which token may come next, and how likely each is: the rules that Whisper was trained to be
// decoded with, applied to logits.
//
//  - The text does not begin with a space or the end.
//  - Tokens that are not spoken (brackets, notes of music) and those that steer the model never
//    come.
//  - Timestamps come in pairs, but for one before the end; they begin the text, within the first
//    second, and never go back; a segment is not empty.
//  - Where all timestamps together are likelier than any text token, it is a timestamp.
//
// Immutable; any number of threads may use it.

#ifndef VARVE_RUNTIME_WHISPER_DECODING_RULES_H_
#define VARVE_RUNTIME_WHISPER_DECODING_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/whisper/whisper_model.h"

namespace varve {

inline constexpr double kTimestampSeconds = 0.02;  // from one timestamp to the next

struct DecodingRuleOptions {
  bool timestamps = true;                // false: none comes
  double max_initial_timestamp_s = 1.0;  // < 0: no such rule
};

class DecodingRules {
 public:
  // `model` is not owned.
  DecodingRules(const WhisperModel& model, const DecodingRuleOptions& options);

  // Sets logits [vocab] of what may not follow `sampled` (the tokens since the prompt) to -inf, and
  // gives the logarithm of the sum of e^logit of the others, for log probabilities. Not finite
  // where no finite logit is left. `scratch` is resized as it needs.
  double Apply(std::span<const int32_t> sampled, std::span<float> logits,
               std::vector<float>* scratch) const;

 private:
  void ApplyTimestampRules(std::span<const int32_t> sampled, std::span<float> logits) const;

  const WhisperVocabulary& vocabulary_;
  bool timestamps_;
  int32_t last_initial_;        // the last timestamp that may come first
  std::vector<int32_t> never_;  // ascending
};

// The same logarithm of all logits as they are; `scratch` gets e^(logit - largest) of each.
double LogSumExp(std::span<const float> logits, std::vector<float>* scratch);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_DECODING_RULES_H_
