// FetchEstimate: how long fetching pages takes, learned from fetches: a time per fetch and a time
// per page, fitted to those before (least squares; each new one makes the old count for less).
//
// A tier that was slow is not asked again while computing is faster, so nothing new would be
// learned: knowledge fades, by half in kHalfLife, and then it is tried again.
//
// Not thread-safe.

#ifndef VARVE_SERVE_TIERS_FETCH_ESTIMATE_H_
#define VARVE_SERVE_TIERS_FETCH_ESTIMATE_H_

#include <chrono>
#include <cstddef>

#include "serve/tiers/page_tier.h"

namespace varve::serve {

class FetchEstimate {
 public:
  static constexpr std::chrono::seconds kHalfLife{15};

  // A fetch of so many pages took that long. One that found nothing by its deadline has taken at
  // least as long.
  void Observe(size_t num_pages, double seconds, TierClock::time_point now);
  // 0 while nothing is known.
  double Seconds(size_t num_pages, TierClock::time_point now) const;

 private:
  // Sums over fetches, faded: weight, pages, seconds, pages², pages × seconds.
  double weight_ = 0;
  double pages_ = 0;
  double seconds_ = 0;
  double pages_pages_ = 0;
  double pages_seconds_ = 0;
  TierClock::time_point last_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_FETCH_ESTIMATE_H_
