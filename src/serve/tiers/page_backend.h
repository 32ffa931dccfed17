// PageBackend: where a tier's pages are. Calls may wait, fail and throw away; ThreadedTier keeps
// that from those who ask.
//
// Write is called by one thread, Read and Contains by another, AddTo by any: a back end guards what
// they share.

#ifndef VARVE_SERVE_TIERS_PAGE_BACKEND_H_
#define VARVE_SERVE_TIERS_PAGE_BACKEND_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "serve/tiers/page_tier.h"
#include "serve/tiers/write_queue.h"

namespace varve::serve {

class PageBackend {
 public:
  virtual ~PageBackend() = default;
  virtual const char* name() const = 0;

  // Stores pages, or drops and counts them.
  virtual void Write(std::span<const PageItem> items) = 0;
  // How much of the queue a Write takes at most, so that a stop does not wait long.
  virtual size_t max_batch() const = 0;

  using Give = std::function<void(size_t index, PageImage image)>;
  // Gives each page that is there and has passed its check; stops at the deadline.
  virtual void Read(std::span<const PageKey> keys, TierClock::time_point deadline,
                    const Give& give) = 0;
  virtual std::vector<bool> Contains(std::span<const PageKey> keys,
                                     TierClock::time_point deadline) = 0;
  // False: not worth asking now.
  virtual bool IsAvailable() const = 0;
  // Wakes a call that waits, for a stop.
  virtual void Interrupt() = 0;
  // All but hits, misses, late, bytes_read and what concerns the queue.
  virtual void AddTo(TierStats* stats) const = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_BACKEND_H_
