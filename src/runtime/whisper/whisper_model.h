// WhisperModel: a speech model that is ready to run: sizes, weights, vocabulary.
//
// Owns the tensors. Immutable; any number of threads may use it.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_MODEL_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/whisper/whisper_tensors.h"
#include "runtime/whisper/whisper_vocabulary.h"
#include "runtime/whisper/whisper_weights.h"
#include "varve/status.h"

namespace varve {

class WhisperModel {
 public:
  // Any file that ReadWhisperFile reads.
  static Result<std::shared_ptr<const WhisperModel>> Load(const std::string& path);
  static Result<std::shared_ptr<const WhisperModel>> Create(WhisperTensors tensors);

  WhisperModel(const WhisperModel&) = delete;
  WhisperModel& operator=(const WhisperModel&) = delete;

  const WhisperConfig& config() const { return tensors_.config; }
  const WhisperWeights& weights() const { return weights_; }
  const WhisperVocabulary& vocabulary() const { return vocabulary_; }
  const WhisperTensors& tensors() const { return tensors_; }
  // A hash of sizes, names and all weights; never 0.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  WhisperModel(WhisperTensors tensors, WhisperVocabulary vocabulary);

  WhisperTensors tensors_;
  WhisperVocabulary vocabulary_;
  WhisperWeights weights_;  // views of tensors_
  uint64_t fingerprint_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_MODEL_H_
