// PackWorkers: threads that do the jobs of packing while the cache goes on. What a job does is the
// matter of PackWork; what comes of it is installed by the cache, on its own thread.
//
// A job that fails, or throws, comes back with its status: nothing is lost, since the cache keeps
// the page as it was. Jobs wait in a queue with a bound; a full one refuses.

#ifndef VARVE_CACHE_PACK_WORKERS_H_
#define VARVE_CACHE_PACK_WORKERS_H_

#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/pack_work.h"

namespace varve {

class PackWorkers {
 public:
  using JobList = std::list<std::unique_ptr<PackJob>>;

  // `work` outlives the workers.
  PackWorkers(const CacheShape& shape, int num_threads, size_t max_queue, PackWork* work);
  // Ends the threads; jobs that wait are given up. Collect first, to release their pages.
  ~PackWorkers();
  PackWorkers(const PackWorkers&) = delete;
  PackWorkers& operator=(const PackWorkers&) = delete;

  // False, with the job untouched, if max_queue jobs are waiting.
  bool Push(std::unique_ptr<PackJob>& job);
  // Jobs that are done, in the order in which they ended.
  JobList Collect();
  // Takes back what no worker has begun.
  JobList CancelWaiting(PackJob::Kind kind);
  // Waits until nothing waits or runs.
  void WaitUntilIdle();

  // Most jobs that waited at once; that waited or were being worked on.
  size_t queue_peak() const;
  size_t depth_peak() const;

 private:
  void Loop();

  const CacheShape shape_;
  const size_t max_queue_;
  PackWork* const work_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  JobList waiting_;
  JobList done_;
  size_t running_ = 0;
  size_t queue_peak_ = 0;
  size_t depth_peak_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace varve

#endif  // VARVE_CACHE_PACK_WORKERS_H_
