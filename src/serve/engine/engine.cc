#include "serve/engine/engine.h"

#include <chrono>

namespace varve::serve {
namespace {

// A step of a large model on a busy machine may take this long; then what was seen last must do.
constexpr std::chrono::seconds kSnapshotPatience(2);

Status Stopping() { return FailedPrecondition("the server is stopping"); }

}  // namespace

Engine::Engine(std::unique_ptr<BatchEngine> batch) : batch_(std::move(batch)) {
  snapshot_ = std::make_shared<const EngineSnapshot>(batch_->Snapshot());
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() { Stop(std::chrono::milliseconds(0)); }

void Engine::Submit(CompletionRequest request, const std::shared_ptr<AnswerChannel>& channel) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) {
      arrivals_.emplace_back(std::move(request), channel);
      changed_.notify_all();
      return;
    }
  }
  AnswerEnd end;
  end.reason = FinishReason::kError;
  end.error = Stopping();
  channel->Push({.choice = request.choice, .text = {}, .token = {}, .end = std::move(end)});
}

std::shared_ptr<const EngineSnapshot> Engine::Snapshot() {
  std::unique_lock lock(mutex_);
  const uint64_t seen = num_published_;
  is_asked_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kSnapshotPatience, [&] { return num_published_ != seen || is_ending_; });
  return snapshot_;
}

void Engine::Stop(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, patience, [this] { return arrivals_.empty() && !is_busy_; });
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool Engine::TakeArrivals(bool is_busy) {
  std::unique_lock lock(mutex_);
  if (!is_busy && arrivals_.empty()) {
    is_busy_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_ending_ || is_asked_ || !arrivals_.empty(); });
  }
  is_busy_ = is_busy || !arrivals_.empty();
  std::vector<Arrival> arrivals = std::exchange(arrivals_, {});
  const bool goes_on = !is_ending_;
  lock.unlock();
  for (Arrival& arrival : arrivals) {
    batch_->Add(std::move(arrival.first), std::move(arrival.second));
  }
  return goes_on;
}

void Engine::PublishIfAsked() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_asked_, false)) return;
  }
  auto snapshot = std::make_shared<const EngineSnapshot>(batch_->Snapshot());
  {
    const std::lock_guard lock(mutex_);
    snapshot_ = std::move(snapshot);
    ++num_published_;
  }
  changed_.notify_all();
}

void Engine::Run() {
  bool is_busy = false;
  while (TakeArrivals(is_busy)) {
    is_busy = batch_->Step();
    PublishIfAsked();
  }
  batch_->EndAll(Stopping());
}

}  // namespace varve::serve
