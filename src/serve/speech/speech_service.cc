#include "serve/speech/speech_service.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/audio/log_mel.h"
#include "runtime/slab_reserve.h"

namespace varve::serve {
namespace {

// Counts a sound while it is here.
class Presence {
 public:
  explicit Presence(std::atomic<int>& present) : present_(present), number_(++present) {}
  ~Presence() { --present_; }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  int number() const { return number_; }

 private:
  std::atomic<int>& present_;
  const int number_;
};

int NumThreads(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

SpeechService::SpeechService(std::shared_ptr<const WhisperModel> model,
                             const SpeechSettings& settings)
    : id_(settings.id),
      max_waiting_(settings.max_waiting),
      model_(std::move(model)),
      executor_(MakeThreadPool(NumThreads(settings.threads))) {}

Result<std::unique_ptr<SpeechService>> SpeechService::Create(
    std::shared_ptr<const WhisperModel> model, const SpeechSettings& settings) {
  std::unique_ptr<SpeechService> service(new SpeechService(std::move(model), settings));
  SpeechOptions options;
  options.plan = settings.plan;
  options.precision = settings.precision;
  options.pool = MakeReservingPool(kSpeechReserveBytes);
  VARVE_ASSIGN_OR_RETURN(service->runner_,
                         SpeechRunner::Create(service->model_, *service->executor_, options));
  return service;
}

Result<Transcript> SpeechService::Transcribe(std::span<const float> samples,
                                             const TranscribeOptions& options,
                                             const std::function<bool()>& goes_on) {
  const Presence presence(present_);
  if (presence.number() > max_waiting_ + 1) {
    return FailedPrecondition(
        fmt::format("queue: {} sounds wait, the limit is {}", presence.number() - 2, max_waiting_));
  }
  const std::lock_guard lock(mutex_);
  bool ended = !goes_on();
  TranscribeCallbacks callbacks;
  callbacks.on_progress = [&](double) {
    ended = ended || !goes_on();
    return !ended;
  };
  if (ended) return Transcript();
  const LogMel mel = ComputeLogMel(samples, model_->config().mels, *executor_);
  return varve::Transcribe(*runner_, mel, options, callbacks);
}

}  // namespace varve::serve
