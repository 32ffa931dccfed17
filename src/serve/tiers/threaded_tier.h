// ThreadedTier: a PageTier over a PageBackend. One thread writes what has been put, another reads
// what is asked for; callers wait for neither longer than they want.
//
// A question whose deadline has passed is given up: its answer, when it comes, is thrown away.

#ifndef VARVE_SERVE_TIERS_THREADED_TIER_H_
#define VARVE_SERVE_TIERS_THREADED_TIER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "serve/tiers/fetch_estimate.h"
#include "serve/tiers/page_backend.h"
#include "serve/tiers/page_tier.h"
#include "serve/tiers/write_queue.h"

namespace varve::serve {

class ThreadedTier final : public PageTier {
 public:
  ThreadedTier(std::unique_ptr<PageBackend> backend, uint64_t queue_bytes);
  // What waits is given up: Flush first.
  ~ThreadedTier() override;
  ThreadedTier(const ThreadedTier&) = delete;
  ThreadedTier& operator=(const ThreadedTier&) = delete;

  const char* name() const override { return backend_->name(); }
  void Put(const PageKey& key, PageImage image, double value) override;
  std::vector<PageImage> Get(std::span<const PageKey> keys,
                             TierClock::time_point deadline) override;
  std::vector<bool> Contains(std::span<const PageKey> keys,
                             TierClock::time_point deadline) override;
  bool IsQueued(const PageKey& key) const override;
  double ExpectedSeconds(size_t num_pages) const override;
  bool Flush(TierClock::time_point deadline) override;
  TierStats Stats() const override;

 private:
  // A question, shared by who asks and the thread that answers. The mutex is of what may change.
  struct Question {
    std::vector<PageKey> keys;
    TierClock::time_point deadline;
    bool wants_images = false;

    std::mutex mutex;
    std::condition_variable answered;
    std::vector<PageImage> images;
    std::vector<bool> found;
    bool done = false;
    bool given_up = false;
  };

  // False if it was not answered by its deadline; what came until then is there.
  bool Ask(const std::shared_ptr<Question>& question);
  void Answer(Question& question);
  void WriteLoop();
  void ReadLoop();

  const std::unique_ptr<PageBackend> backend_;
  WriteQueue queue_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Question>> questions_;
  bool stop_ = false;
  TierStats stats_;  // hits, misses, late, bytes_read and what concerns the queue
  FetchEstimate estimate_;
  std::thread writer_;
  std::thread reader_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_THREADED_TIER_H_
