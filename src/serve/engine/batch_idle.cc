// BatchEngine: conversations that nobody continues are put to rest, and leave memory for a tier.

#include <algorithm>
#include <chrono>
#include <limits>

#include "serve/engine/batch_engine.h"

namespace varve::serve {
namespace {

// A server that stops writes no longer than this.
constexpr std::chrono::seconds kSpillAllTime{20};

}  // namespace

double BatchEngine::SecondsToIdleWork() const {
  if (prefixes_ == nullptr) return std::numeric_limits<double>::infinity();
  return std::max(0.0, prefixes_->NextIdleWork() - Now());
}

bool BatchEngine::TendIdle(size_t max_pages) {
  if (SecondsToIdleWork() > 0) return false;
  // An end shares the pages of its conversation: it goes before they are put to rest, so that
  // nobody holds their old forms.
  double soonest = std::numeric_limits<double>::infinity();
  for (const double wait : {options_.idle_s, options_.spill_s})
    if (wait > 0) soonest = std::min(soonest, wait);
  if (ends_) ends_->DropOlderThan(Now() - soonest / 2);
  // A page at rest is smaller than before, but for a moment there are both.
  if (estimate_.rest_page_bytes() > 0) MakeRoom(estimate_.rest_page_bytes());
  const bool rested = prefixes_->RestIdle(Now(), max_pages) > 0;
  return SpillIdle(max_pages) || rested;
}

bool BatchEngine::SpillIdle(size_t max_pages) {
  if (tiers_ == nullptr) return false;
  const std::optional<PrefixCache::IdlePath> path = prefixes_->FindToSpill(Now());
  if (!path) return false;
  const std::span<const PageKey> keys = std::span(path->keys).subspan(path->next_page);
  const std::optional<std::vector<bool>> there = tiers_->Contains(keys);
  if (!there) {
    prefixes_->AwaitSpill(Now());
    return false;
  }
  bool has_all = path->next_page == path->first_page;
  size_t handed_over = 0;
  size_t i = 0;
  for (; i < keys.size() && handed_over < max_pages; ++i) {
    if ((*there)[i]) continue;
    has_all = false;
    if (tiers_->IsQueued(keys[i])) continue;
    ++handed_over;
    tiers_->KeepPage(path->sequence, path->next_page + i, keys[i], UsPerPage());
  }
  if (i < keys.size()) {
    PrefixCache::ContinueSpill(*path, path->next_page + i);
    return true;
  }
  if (has_all) return prefixes_->Spill(*path).ok();
  // What has been handed over may yet be dropped: it stays until the tier says that it is there.
  PrefixCache::PostponeSpill(*path, Now());
  return true;
}

void BatchEngine::SpillAll() {
  while (ends_ && ends_->DropOldest()) continue;
  const TierClock::time_point deadline = TierClock::now() + kSpillAllTime;
  for (const PrefixCache::IdlePath& path : prefixes_->AllPaths()) {
    if (!tiers_->KeepPath(path.sequence, path.keys, UsPerPage(), deadline)) return;
  }
  tiers_->Flush(deadline);
}

}  // namespace varve::serve
