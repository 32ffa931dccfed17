#include "serve/tiers/page_fetcher.h"

#include <utility>

namespace varve::serve {

bool PageFetch::IsDone() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

size_t PageFetch::num_pages() const {
  const std::lock_guard lock(mutex_);
  return images_.size();
}

std::vector<PageImage> PageFetch::Take() {
  const std::lock_guard lock(mutex_);
  return std::move(images_);
}

void PageFetch::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
}

PageFetcher::PageFetcher(PageTiers* tiers, std::function<void()> on_done, int num_threads)
    : tiers_(tiers), on_done_(std::move(on_done)) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Loop(); });
}

PageFetcher::~PageFetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<PageFetch> PageFetcher::Start(std::vector<PageKey> keys,
                                              const FetchOptions& options) {
  auto fetch = std::make_shared<PageFetch>();
  fetch->keys_ = std::move(keys);
  fetch->options_ = options;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(fetch);
  }
  wake_.notify_one();
  return fetch;
}

void PageFetcher::Loop() {
  while (true) {
    std::shared_ptr<PageFetch> fetch;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
      fetch = std::move(waiting_.front());
      waiting_.pop_front();
    }
    bool cancelled = false;
    {
      const std::lock_guard lock(fetch->mutex_);
      cancelled = fetch->cancelled_;
    }
    std::vector<PageImage> images;
    if (!cancelled) images = tiers_->Fetch(fetch->keys_, fetch->options_);
    {
      const std::lock_guard lock(fetch->mutex_);
      fetch->images_ = std::move(images);
      fetch->done_ = true;
    }
    if (on_done_) on_done_();
  }
}

}  // namespace varve::serve
