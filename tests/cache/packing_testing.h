// Stand-ins for what packing gives to its threads (cache/pack_work.h): one that notes the pages,
// so that tests can damage what is packed, and one that waits until it is let go on.

#ifndef VARVE_TESTS_CACHE_PACKING_TESTING_H_
#define VARVE_TESTS_CACHE_PACKING_TESTING_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "cache/cache_services.h"

namespace varve {

// Services with another work of packing.
inline CacheServices WithWork(PackWork* work) {
  CacheServices services;
  services.pack_work = work;
  return services;
}

// Does the work and knows every page that it has seen, by layer and first position.
class NotingWork final : public PackWork {
 public:
  void Run(const CacheShape& shape, PackJob& job) override {
    {
      const std::lock_guard lock(mutex_);
      for (const PageRef& page : job.pages)
        pages_[{page->layer, page->first_position}] = page.get();
    }
    CodecPackWork()->Run(shape, job);
  }
  // The packed form of a page that is still there; null if it is not packed.
  const PackedPage* PackedAt(int layer, int64_t first_position) const {
    const std::lock_guard lock(mutex_);
    const auto found = pages_.find({layer, first_position});
    if (found == pages_.end() || found->second->packed() == nullptr) return nullptr;
    return found->second->packed()->packed.get();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, int64_t>, const Page*> pages_;
};

// Calls `before` on the worker, and then does the work unless that has failed or thrown.
class InterruptedWork final : public PackWork {
 public:
  explicit InterruptedWork(std::function<Status()> before) : before_(std::move(before)) {}
  void Run(const CacheShape& shape, PackJob& job) override {
    job.status = before_();
    if (job.status.ok()) CodecPackWork()->Run(shape, job);
  }

 private:
  const std::function<Status()> before_;
};

// A worker's wait for the test.
inline Status WaitFor(const std::atomic<bool>& open) {
  while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Status();
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_PACKING_TESTING_H_
