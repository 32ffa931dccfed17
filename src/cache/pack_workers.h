// PackWorkers: threads that pack groups of sealed pages and restore packed ones, while the cache
// goes on. They read raw or packed bytes that nobody changes and write into the job alone; what
// comes of a job is installed by the cache, on its own thread.
//
// A job that fails, or throws, comes back with its status: nothing is lost, since the cache keeps
// the page as it was. Jobs wait in a queue with a bound; a full one refuses.

#ifndef VARVE_CACHE_PACK_WORKERS_H_
#define VARVE_CACHE_PACK_WORKERS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pages/page.h"
#include "varve/status.h"

namespace varve {

struct PackJob {
  enum class Kind { kPack, kRestore };
  Kind kind = Kind::kPack;
  int layer = 0;
  std::vector<PageRef> pages;
  // Their packed form. kRestore: of each. kPack: null where the page is raw; the others are
  // unpacked to be packed again.
  std::vector<std::shared_ptr<const PackedPage>> packed_from;

  // kPack. Dictionaries to use; with learn they are made anew from these pages, those of strips
  // without repeated rows only if learn_all.
  std::shared_ptr<const PackDictionaries> dictionaries;
  bool learn = false;
  bool learn_all = false;
  bool repack = false;
  bool keep_restored = false;  // of mode full: what came out of unpacking
  // kRestore: where the raw strips of each page go.
  std::vector<PageSlot> slots;

  // What came of it, per page.
  struct Packed {
    PackedStrips strips;
    std::vector<std::byte> restored;  // the page as it was unpacked again
    Status status;
  };
  std::vector<Packed> packed;
  Status status;  // of the whole job
  double pack_us = 0;
  double unpack_us = 0;
  uint64_t unpacked_bytes = 0;
};

class PackWorkers {
 public:
  // Runs on a worker before the work of a job; for tests, which make it fail or wait there.
  using Hook = std::function<Status(const PackJob&)>;
  using JobList = std::list<std::unique_ptr<PackJob>>;

  PackWorkers(const CacheShape& shape, int num_threads, size_t max_queue, Hook hook);
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

  size_t queue_peak() const;

 private:
  void Loop();
  void Work(PackJob& job) const;
  void Restore(PackJob& job) const;

  const CacheShape shape_;
  const size_t max_queue_;
  const Hook hook_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  JobList waiting_;
  JobList done_;
  size_t running_ = 0;
  size_t queue_peak_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// Packs every strip of a page, unpacks it again and compares. `raw` are the page's bytes, which
// must stay as they are meanwhile. restored, unless null, gets the unpacked page. Adds to the times
// of the job. Thread-safe.
Status PackPage(const CacheShape& shape, const Page& page, const std::byte* raw,
                const std::shared_ptr<const PackDictionaries>& dictionaries,
                std::vector<std::byte>* restored, PackedStrips* out, PackJob* times);

// Dictionaries for the pages of a job, a strip each. What the job has is kept where it is good
// enough. Unpacks one strip of all pages at a time.
Result<std::shared_ptr<const PackDictionaries>> LearnDictionaries(const CacheShape& shape,
                                                                  const PackJob& job);

}  // namespace varve

#endif  // VARVE_CACHE_PACK_WORKERS_H_
