// WriteQueue: page images on their way into a tier, in order, with a bound in bytes.
//
// What waits, or is being written, can be found by key, so that a page is never missing between Put
// and the end of its write. Thread-safe: any number of threads push, one pops.

#ifndef VARVE_SERVE_TIERS_WRITE_QUEUE_H_
#define VARVE_SERVE_TIERS_WRITE_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "serve/tiers/page_tier.h"

namespace varve::serve {

struct PageItem {
  PageKey key;
  PageImage image;
  double value = 0;
};

class WriteQueue {
 public:
  explicit WriteQueue(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  enum class Pushed { kQueued, kKnown, kFull };
  // kKnown: the key waits already.
  Pushed Push(PageItem item);
  // Waits for something to write: up to max_items, or up to max_bytes of them, but at least one.
  // They count as waiting until Done. Empty once the queue is stopped.
  std::vector<PageItem> Pop(size_t max_items, uint64_t max_bytes);
  void Done(const std::vector<PageItem>& items);

  PageImage Find(const PageKey& key) const;  // null: not here
  bool WaitUntilEmpty(TierClock::time_point deadline);
  void Stop();
  uint64_t bytes() const;

 private:
  const uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable empty_;
  std::deque<PageItem> items_;
  std::unordered_map<PageKey, PageImage, PageKeyHash> images_;  // waiting or being written
  uint64_t bytes_ = 0;                                          // of those
  bool stop_ = false;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_WRITE_QUEUE_H_
