#include "serve/engine/answer_channel.h"

#include <utility>

namespace varve::serve {

void AnswerChannel::Push(AnswerEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

std::optional<AnswerEvent> AnswerChannel::Next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return std::nullopt;
  AnswerEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace varve::serve
