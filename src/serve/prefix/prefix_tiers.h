// PrefixTiers: the pages of prefixes that are not in memory: fetched ahead for requests that wait,
// brought into their sequences, and written behind once they are computed. What is written is the
// form of pages at rest (idle=), so that a page is written once, whatever becomes of it in memory.
//
// Belongs to the engine's thread, as the Cache does; the tiers have threads of their own. Nothing
// here fails a request: a page that cannot be fetched, or does not pass its checks, is computed.

#ifndef VARVE_SERVE_PREFIX_PREFIX_TIERS_H_
#define VARVE_SERVE_PREFIX_PREFIX_TIERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/tiers/page_fetcher.h"
#include "serve/tiers/page_tiers.h"
#include "varve/cache.h"

namespace varve::serve {

// The pages of a request that are under way.
struct PrefixFetch {
  std::shared_ptr<PageFetch> pages;  // null: none
  size_t first_page = 0;             // of its keys

  bool IsUnderWay() const { return pages != nullptr && !pages->IsDone(); }
};

struct TierView {
  std::string name;
  TierStats stats;
};

struct PrefixTierStats {
  std::vector<TierView> tiers;
  uint64_t pages_imported = 0;  // into sequences
  uint64_t pages_refused = 0;   // images that the cache did not take
  uint64_t pages_exported = 0;
  uint64_t pages_skipped = 0;  // not asked for: computing was expected to be faster
};

class PrefixTiers {
 public:
  // `cache` is not owned and must outlive this. queue_bytes may wait in each tier.
  PrefixTiers(Cache& cache, std::unique_ptr<PageTiers> tiers, uint64_t queue_bytes);
  // Writes what waits, for some seconds at most.
  ~PrefixTiers();

  // Starts fetching keys[first_page, …). us_per_page is what computing one takes; 0: not known.
  PrefixFetch Fetch(std::span<const PageKey> keys, size_t first_page, double us_per_page);
  // Appends what has come to a sequence of num_pages pages; how many pages it has then. make_room
  // is called before each page; without room no more are taken.
  size_t Import(const PrefixFetch& fetch, SequenceId sequence, size_t num_pages,
                const std::function<bool()>& make_room);
  // Hands pages [first_page, keys.size()) of a sequence to the tiers; how many of its pages have
  // been handed over then.
  size_t Keep(SequenceId sequence, std::span<const PageKey> keys, size_t first_page,
              double us_per_page);
  // One page of a sequence; false if it cannot leave the cache.
  bool KeepPage(SequenceId sequence, size_t page, const PageKey& key, double us_per_page);
  // All pages of a path that no tier has, from the first on: what is written can be used, however
  // far it comes. Waits while all tiers write. False: not all by the deadline.
  bool KeepPath(SequenceId sequence, std::span<const PageKey> keys, double us_per_page,
                TierClock::time_point deadline);
  // Waits until all has been written; false: not by the deadline.
  bool Flush(TierClock::time_point deadline) { return tiers_->Flush(deadline); }
  // Which of the pages some tier has. Asks in the background: none until the answer is there. One
  // question at a time; asking for other pages then forgets the answer.
  std::optional<std::vector<bool>> Contains(std::span<const PageKey> keys);
  // Whether it waits to be written to some tier.
  bool IsQueued(const PageKey& key) const;

  PrefixTierStats stats() const;

 private:
  PageImage Export(SequenceId sequence, size_t page);
  // Any thread.
  std::vector<bool> Ask(std::span<const PageKey> keys) const;

  Cache& cache_;
  int64_t page_tokens_;
  std::unique_ptr<PageTiers> tiers_;
  uint64_t queue_bytes_;
  PageFetcher fetcher_;
  PrefixTierStats stats_;
  std::vector<PageKey> asked_;
  std::future<std::vector<bool>> answer_;  // for these
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PREFIX_TIERS_H_
