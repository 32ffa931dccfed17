#include "serve/engine/engine.h"

#include <algorithm>
#include <chrono>

namespace varve::serve {
namespace {

constexpr double kMaxWaitSeconds = 3600;  // a clock can add that much

Status Stopping() { return FailedPrecondition("the server is stopping"); }

}  // namespace

Engine::Engine(std::unique_ptr<BatchEngine> batch) : batch_(std::move(batch)) {
  last_snapshot_ = batch_->Snapshot();
  thread_ = std::thread([this] { Loop(); });
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

bool Engine::Run(const std::function<void(BatchEngine&)>& task) {
  Task asked{.run = &task};
  std::unique_lock lock(mutex_);
  if (is_ending_) return false;
  tasks_.push_back(&asked);
  changed_.notify_all();
  // The loop runs what was asked for before its end, so this never waits in vain.
  changed_.wait(lock, [&] { return asked.is_done; });
  return true;
}

EngineSnapshot Engine::Snapshot() {
  EngineSnapshot snapshot;
  if (Run([&](BatchEngine& batch) { snapshot = batch.Snapshot(); })) return snapshot;
  const std::lock_guard lock(mutex_);
  return last_snapshot_;
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
    const auto has_news = [this] { return is_ending_ || !tasks_.empty() || !arrivals_.empty(); };
    // Conversations that nobody continues are looked after all the same.
    const double seconds = std::min(batch_->SecondsToIdleWork(), kMaxWaitSeconds);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), has_news);
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

void Engine::RunTasks() {
  std::unique_lock lock(mutex_);
  const std::vector<Task*> tasks = std::exchange(tasks_, {});
  lock.unlock();
  for (Task* task : tasks) (*task->run)(*batch_);
  lock.lock();
  for (Task* task : tasks) task->is_done = true;
  if (!tasks.empty()) changed_.notify_all();
}

void Engine::Loop() {
  bool is_busy = false;
  while (TakeArrivals(is_busy)) {
    is_busy = batch_->Step();
    RunTasks();
  }
  batch_->EndAll(Stopping());
  RunTasks();
  EngineSnapshot snapshot = batch_->Snapshot();
  const std::lock_guard lock(mutex_);
  last_snapshot_ = std::move(snapshot);
}

}  // namespace varve::serve
