#include "serve/tiers/write_queue.h"

#include <utility>

namespace varve::serve {

WriteQueue::Pushed WriteQueue::Push(PageItem item) {
  const uint64_t bytes = item.image->size();
  {
    const std::lock_guard lock(mutex_);
    if (images_.contains(item.key)) return Pushed::kKnown;
    if (stop_ || bytes > max_bytes_ || bytes_ > max_bytes_ - bytes) return Pushed::kFull;
    images_.emplace(item.key, item.image);
    items_.push_back(std::move(item));
    bytes_ += bytes;
  }
  wake_.notify_one();
  return Pushed::kQueued;
}

std::vector<PageItem> WriteQueue::Pop(size_t max_items, uint64_t max_bytes) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stop_ || !items_.empty(); });
  std::vector<PageItem> taken;
  if (stop_) return taken;
  uint64_t bytes = 0;
  while (!items_.empty() && taken.size() < max_items) {
    bytes += items_.front().image->size();
    if (!taken.empty() && bytes > max_bytes) break;
    taken.push_back(std::move(items_.front()));
    items_.pop_front();
  }
  return taken;
}

void WriteQueue::Done(const std::vector<PageItem>& items) {
  {
    const std::lock_guard lock(mutex_);
    for (const PageItem& item : items) {
      if (images_.erase(item.key) > 0) bytes_ -= item.image->size();
    }
    if (!images_.empty()) return;
  }
  empty_.notify_all();
}

PageImage WriteQueue::Find(const PageKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(key);
  return found != images_.end() ? found->second : nullptr;
}

bool WriteQueue::WaitUntilEmpty(TierClock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return empty_.wait_until(lock, deadline, [this] { return images_.empty(); });
}

void WriteQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
}

uint64_t WriteQueue::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace varve::serve
