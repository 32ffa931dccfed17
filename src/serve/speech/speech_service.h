// SpeechService: a Whisper model behind the server's speech routes.
//
// One sound is transcribed at a time, with all threads; the others wait for their turn. Any number
// of threads may call.

#ifndef VARVE_SERVE_SPEECH_SPEECH_SERVICE_H_
#define VARVE_SERVE_SPEECH_SPEECH_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "runtime/whisper/speech_runner.h"
#include "runtime/whisper/transcriber.h"
#include "varve/status.h"

namespace varve::serve {

struct SpeechSettings {
  std::string id;  // the model's, for /v1/models
  Plan plan;       // of both caches
  ProductPrecision precision = ProductPrecision::kF32;
  int threads = 0;       // 0: all cores
  int max_waiting = 16;  // sounds that may wait for their turn
};

class SpeechService {
 public:
  static Result<std::unique_ptr<SpeechService>> Create(std::shared_ptr<const WhisperModel> model,
                                                       const SpeechSettings& settings);

  const std::string& id() const { return id_; }

  // `samples` are those of ReadSpeech. `goes_on` is asked now and then; false ends the work with
  // what there is. kFailedPrecondition: too many wait.
  Result<Transcript> Transcribe(std::span<const float> samples, const TranscribeOptions& options,
                                const std::function<bool()>& goes_on);

 private:
  SpeechService(std::shared_ptr<const WhisperModel> model, const SpeechSettings& settings);

  const std::string id_;
  const int max_waiting_;
  const std::shared_ptr<const WhisperModel> model_;
  const std::unique_ptr<Executor> executor_;
  std::atomic<int> present_ = 0;  // sounds that wait or are worked on
  std::mutex mutex_;              // guards the runner
  std::unique_ptr<SpeechRunner> runner_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_SPEECH_SPEECH_SERVICE_H_
