#include "cache/pack_workers.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

namespace varve {

PackWorkers::PackWorkers(const CacheShape& shape, int num_threads, size_t max_queue, PackWork* work)
    : shape_(shape), max_queue_(max_queue), work_(work) {
  // With fewer threads than asked for, or none, groups wait longer, or for ever.
  try {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Loop(); });
  } catch (const std::system_error&) {
  }
}

PackWorkers::~PackWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PackWorkers::Push(std::unique_ptr<PackJob>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (threads_.empty() || waiting_.size() >= max_queue_) return false;
    waiting_.push_back(std::move(job));
    queue_peak_ = std::max(queue_peak_, waiting_.size());
    depth_peak_ = std::max(depth_peak_, waiting_.size() + running_);
  }
  wake_.notify_one();
  return true;
}

PackWorkers::JobList PackWorkers::Collect() {
  const std::lock_guard lock(mutex_);
  JobList collected;
  collected.splice(collected.begin(), done_);
  return collected;
}

PackWorkers::JobList PackWorkers::CancelWaiting(PackJob::Kind kind) {
  const std::lock_guard lock(mutex_);
  JobList cancelled;
  for (auto job = waiting_.begin(); job != waiting_.end();) {
    const auto next = std::next(job);
    if ((*job)->kind == kind) cancelled.splice(cancelled.end(), waiting_, job);
    job = next;
  }
  return cancelled;
}

void PackWorkers::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty() && running_ == 0; });
}

size_t PackWorkers::queue_peak() const {
  const std::lock_guard lock(mutex_);
  return queue_peak_;
}

size_t PackWorkers::depth_peak() const {
  const std::lock_guard lock(mutex_);
  return depth_peak_;
}

void PackWorkers::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    JobList mine;  // moving a node cannot fail
    mine.splice(mine.begin(), waiting_, waiting_.begin());
    PackJob* job = mine.front().get();
    ++running_;
    lock.unlock();
    // A worker that throws (out of memory) leaves its pages as they were.
    try {
      work_->Run(shape_, *job);
    } catch (const std::exception& error) {
      job->status = Internal(std::string("a packing worker failed: ") + error.what());
    }
    lock.lock();
    done_.splice(done_.end(), mine);
    --running_;
    if (waiting_.empty() && running_ == 0) idle_.notify_all();
  }
}

}  // namespace varve
