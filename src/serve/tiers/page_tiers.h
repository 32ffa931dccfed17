// PageTiers: the tiers behind a prefix cache, the nearest first, as one.
//
// Fetch asks them in turn for what is still missing of a chain, and only where fetching is expected
// to be faster than computing: each tier has learned how long it takes, the caller says what a page
// costs to compute. Nor does it wait longer than computing would take. Pages that come from a
// farther tier go into the nearer ones, too.
//
// Thread-safe.

#ifndef VARVE_SERVE_TIERS_PAGE_TIERS_H_
#define VARVE_SERVE_TIERS_PAGE_TIERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/tiers/page_tier.h"
#include "varve/status.h"

namespace varve::serve {

struct FetchOptions {
  double compute_seconds_per_page = 0;
  // Nobody waits longer, however long computing takes.
  double max_seconds = 5;
  // What computing a page costs: tiers that get the pages of others get it, divided by the image's
  // bytes, as their value (PageTier::Put).
  double page_cost = 0;
};

class PageTiers {
 public:
  PageTiers() = default;
  explicit PageTiers(std::vector<std::unique_ptr<PageTier>> tiers) : tiers_(std::move(tiers)) {}

  bool empty() const { return tiers_.empty(); }
  const std::vector<std::unique_ptr<PageTier>>& tiers() const { return tiers_; }

  // Into every tier, written behind.
  void Put(const PageKey& key, const PageImage& image, double value);
  // The images of a chain: as many as there are from the first key on, without a gap.
  std::vector<PageImage> Fetch(std::span<const PageKey> chain, const FetchOptions& options);
  // Pages that were not asked for because computing was expected to be faster.
  uint64_t pages_skipped() const { return pages_skipped_; }

  bool Flush(TierClock::time_point deadline);
  // Until one of them has written all that it was given: the others may be away.
  bool FlushAny(TierClock::time_point deadline);

 private:
  std::vector<std::unique_ptr<PageTier>> tiers_;
  std::atomic<uint64_t> pages_skipped_ = 0;
};

struct TierSettings {
  std::string disk_folder;  // empty: no disk tier
  uint64_t disk_bytes = 0;
  std::string redis_url;  // empty: no Redis
  // What may wait to be written, in each tier.
  uint64_t queue_bytes = uint64_t{128} << 20;

  bool empty() const { return disk_folder.empty() && redis_url.empty(); }
};

// False in a build without hiredis: a Redis is refused then (kUnimplemented).
bool HasRedis();

// Fails where a setting can never work, or the folder cannot be used. A Redis that does not answer
// is no reason: it may come.
Result<std::unique_ptr<PageTiers>> OpenTiers(const TierSettings& settings);

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_TIERS_H_
