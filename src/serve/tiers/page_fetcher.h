// PageFetcher: fetches chains of pages ahead, on threads of its own, while the engine goes on.
//
// A request that waits for a slot, or whose pages are not in memory, starts a fetch; the engine
// looks at it between steps and takes what has come. It never waits here.
//
// Thread-safe; PageFetch likewise.

#ifndef VARVE_SERVE_TIERS_PAGE_FETCHER_H_
#define VARVE_SERVE_TIERS_PAGE_FETCHER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/tiers/page_tiers.h"

namespace varve::serve {

class PageFetch {
 public:
  // Whether all that will come has come.
  bool IsDone() const;
  size_t num_pages() const;  // that have come and were not taken
  // What has come, from the first key on; once.
  std::vector<PageImage> Take();
  // Nobody wants it any more.
  void Cancel();

 private:
  friend class PageFetcher;
  std::vector<PageKey> keys_;
  FetchOptions options_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<PageImage> images_;
  bool done_ = false;
  bool cancelled_ = false;
};

class PageFetcher {
 public:
  // `tiers` outlives this. on_done is called on a thread of the fetcher after each fetch, to wake
  // who waits for work.
  PageFetcher(PageTiers* tiers, std::function<void()> on_done, int num_threads = 2);
  ~PageFetcher();
  PageFetcher(const PageFetcher&) = delete;
  PageFetcher& operator=(const PageFetcher&) = delete;

  std::shared_ptr<PageFetch> Start(std::vector<PageKey> keys, const FetchOptions& options);

 private:
  void Loop();

  PageTiers* const tiers_;
  const std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<PageFetch>> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_FETCHER_H_
