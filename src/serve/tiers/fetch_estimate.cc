#include "serve/tiers/fetch_estimate.h"

#include <algorithm>
#include <cmath>

namespace varve::serve {
namespace {

// Some ten fetches are remembered.
constexpr double kFade = 0.9;

}  // namespace

void FetchEstimate::Observe(size_t num_pages, double seconds, TierClock::time_point now) {
  const auto pages = static_cast<double>(num_pages);
  weight_ = kFade * weight_ + 1;
  pages_ = kFade * pages_ + pages;
  seconds_ = kFade * seconds_ + seconds;
  pages_pages_ = kFade * pages_pages_ + pages * pages;
  pages_seconds_ = kFade * pages_seconds_ + pages * seconds;
  last_ = now;
}

double FetchEstimate::Seconds(size_t num_pages, TierClock::time_point now) const {
  if (weight_ == 0) return 0;
  const double mean_pages = pages_ / weight_;
  const double mean_seconds = seconds_ / weight_;
  const double variance = pages_pages_ / weight_ - mean_pages * mean_pages;
  const double covariance = pages_seconds_ / weight_ - mean_pages * mean_seconds;
  // Fetches that are all alike do not tell their two times apart: all of it is per page.
  double per_page = mean_seconds / std::max(mean_pages, 1.0);
  if (variance > 0.01 * mean_pages * mean_pages)
    per_page = std::clamp(covariance / variance, 0.0, per_page);
  const double per_fetch = std::max(0.0, mean_seconds - per_page * mean_pages);
  const double idle = std::chrono::duration<double>(now - last_).count();
  const double half_life = std::chrono::duration<double>(kHalfLife).count();
  const double faded = std::exp2(-std::max(0.0, idle) / half_life);
  return faded * (per_fetch + per_page * static_cast<double>(num_pages));
}

}  // namespace varve::serve
