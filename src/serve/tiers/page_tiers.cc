#include "serve/tiers/page_tiers.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace varve::serve {

void PageTiers::Put(const PageKey& key, const PageImage& image, double value) {
  for (const std::unique_ptr<PageTier>& tier : tiers_) tier->Put(key, image, value);
}

std::vector<PageImage> PageTiers::Fetch(std::span<const PageKey> chain,
                                        const FetchOptions& options) {
  std::vector<PageImage> images;  // without a gap
  std::vector<PageImage> beyond(chain.size());
  for (size_t i = 0; i < tiers_.size() && images.size() < chain.size(); ++i) {
    const std::span<const PageKey> rest = chain.subspan(images.size());
    const double compute = std::min(
        options.max_seconds, options.compute_seconds_per_page * static_cast<double>(rest.size()));
    if (tiers_[i]->ExpectedSeconds(rest.size()) > compute) {
      pages_skipped_ += rest.size();
      continue;
    }
    const TierClock::time_point deadline =
        TierClock::now() +
        std::chrono::duration_cast<TierClock::duration>(std::chrono::duration<double>(compute));
    const size_t first = images.size();
    const std::vector<PageImage> got = tiers_[i]->Get(rest, deadline);
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == nullptr) continue;
      beyond[first + j] = got[j];
      const double value = options.page_cost / static_cast<double>(got[j]->size());
      for (size_t nearer = 0; nearer < i; ++nearer) tiers_[nearer]->Put(rest[j], got[j], value);
    }
    while (images.size() < chain.size() && beyond[images.size()] != nullptr)
      images.push_back(beyond[images.size()]);
  }
  return images;
}

bool PageTiers::FlushAny(TierClock::time_point deadline) {
  constexpr std::chrono::milliseconds kPoll{2};
  for (;;) {
    for (const std::unique_ptr<PageTier>& tier : tiers_)
      if (tier->Flush(TierClock::now())) return true;
    if (TierClock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

bool PageTiers::Flush(TierClock::time_point deadline) {
  bool all = true;
  for (const std::unique_ptr<PageTier>& tier : tiers_) all = tier->Flush(deadline) && all;
  return all;
}

}  // namespace varve::serve
