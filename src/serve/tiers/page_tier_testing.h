// What the tests of tiers share: pages by number, and deadlines.

#ifndef VARVE_SERVE_TIERS_PAGE_TIER_TESTING_H_
#define VARVE_SERVE_TIERS_PAGE_TIER_TESTING_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "serve/tiers/page_tier.h"

namespace varve::serve {

inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
}

inline PageKey KeyOf(uint64_t page) { return PageKey::Of(Mix(page + 1), Mix(~page)); }

inline PageImage ImageOf(uint64_t page, size_t bytes) {
  std::vector<std::byte> image(bytes);
  for (size_t i = 0; i < bytes; ++i) image[i] = static_cast<std::byte>(Mix(page * 131 + i) >> 56);
  return std::make_shared<const std::vector<std::byte>>(std::move(image));
}

inline TierClock::time_point After(double seconds) {
  return TierClock::now() +
         std::chrono::duration_cast<TierClock::duration>(std::chrono::duration<double>(seconds));
}
// Long enough for anything that is not stuck.
inline TierClock::time_point Soon() { return After(20); }

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_TIER_TESTING_H_
