// AnswerChannel: the way of an answer from the engine's thread to the thread of its client. The
// engine pushes and never waits; the client takes, with a limit of time, so that it can see between
// two events whether somebody still listens. One channel may carry several answers (`choice`).
// Thread-safe.

#ifndef VARVE_SERVE_ENGINE_ANSWER_CHANNEL_H_
#define VARVE_SERVE_ENGINE_ANSWER_CHANNEL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "serve/engine/completion_request.h"

namespace varve::serve {

class AnswerChannel {
 public:
  void Push(AnswerEvent event);
  // The next event; none if `timeout` passes first.
  std::optional<AnswerEvent> Next(std::chrono::milliseconds timeout);

  // Says that nobody listens any more. The engine frees the answer's pages before its next step.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<AnswerEvent> events_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_ANSWER_CHANNEL_H_
