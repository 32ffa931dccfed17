// PageTier: a store of page images behind the prefix cache: a folder on this machine's disk, or a
// Redis that a fleet shares.
//
// A page image is what Cache::ExportPages gives: the pages of all layers for one page's worth of
// tokens, in whatever rung, packed or not. Its key stands for model, plan, tenant and all tokens up
// to the page's end, so an image never changes and it does not matter who wrote it. A tier may lose
// any image at any time. It never gives a wrong one: key, length and checksum travel with the bytes
// and are compared before they are handed out, and Cache::ImportPages checks the image once more.
//
// Nothing here fails a request. Put only hands over; a thread of the tier writes behind, from a
// queue that is bounded in bytes. What finds no room is dropped and counted. Get and Contains come
// back at their deadline with what is there by then. Whatever is broken behind a tier (a full disk,
// a dead, slow or lying server) looks like a miss and shows in the statistics.
//
// Thread-safe: any number of threads may call at once.

#ifndef VARVE_SERVE_TIERS_PAGE_TIER_H_
#define VARVE_SERVE_TIERS_PAGE_TIER_H_

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace varve::serve {

// 128 bits of a chained hash: model fingerprint, plan, tenant salt, all tokens up to the page's
// end.
struct PageKey {
  std::array<std::byte, 16> bytes = {};

  static PageKey Of(uint64_t low, uint64_t high) {
    PageKey key;
    std::memcpy(key.bytes.data(), &low, sizeof(low));
    std::memcpy(key.bytes.data() + sizeof(low), &high, sizeof(high));
    return key;
  }
  // clang-tidy 14 takes the 0 that this is compared with for a pointer.
  auto operator<=>(const PageKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

// A key is a hash already.
struct PageKeyHash {
  size_t operator()(const PageKey& key) const {
    uint64_t word;
    std::memcpy(&word, key.bytes.data(), sizeof(word));
    return static_cast<size_t>(word);
  }
};

// Shared, because it may wait in the queues of several tiers. Null: not there.
using PageImage = std::shared_ptr<const std::vector<std::byte>>;

using TierClock = std::chrono::steady_clock;

// Sums since the tier was opened, unless said otherwise.
struct TierStats {
  uint64_t hits = 0;     // pages
  uint64_t misses = 0;   // pages that were not there, whatever the reason
  uint64_t late = 0;     // misses of those: not there by the deadline
  uint64_t damaged = 0;  // misses of those: bytes that failed their check, and were thrown away
  uint64_t bytes_read = 0;

  uint64_t stored = 0;  // pages
  uint64_t bytes_written = 0;
  uint64_t known = 0;          // Puts of pages that were there already
  uint64_t dropped_queue = 0;  // Puts that found the queue full
  uint64_t dropped_room = 0;   // no room: budget, disk or server full, or the page worth too little
  uint64_t dropped_error = 0;  // a write that failed, or a server that was away
  uint64_t evicted = 0;        // pages that went for others
  uint64_t errors = 0;         // of the system or the server, of any kind
  uint64_t reconnects = 0;

  // As things stand.
  uint64_t pages = 0;  // 0 where only the server knows
  uint64_t bytes_held = 0;
  uint64_t bytes_queued = 0;
  bool available = true;   // false: requests are not even tried at the moment
  std::string last_error;  // for people; empty: none yet

  // Adds what a backend counts; things as they stand are left alone, but for the last error.
  void AddCounts(const TierStats& counted) {
    damaged += counted.damaged;
    stored += counted.stored;
    bytes_written += counted.bytes_written;
    known += counted.known;
    dropped_room += counted.dropped_room;
    dropped_error += counted.dropped_error;
    evicted += counted.evicted;
    errors += counted.errors;
    last_error = counted.last_error;
  }
};

class PageTier {
 public:
  virtual ~PageTier() = default;
  // For metrics and logs: "disk", "redis".
  virtual const char* name() const = 0;

  // Takes an image to be written behind. `value` says what the page is worth per byte, on a scale
  // of the caller's: where room is short those with the least go first. A key that is there already
  // only gets the new value. Never waits.
  virtual void Put(const PageKey& key, PageImage image, double value) = 0;

  // The images of these keys, null where there is none: as many entries as keys. Comes back when
  // all are there or known not to be, and at the deadline at the latest.
  virtual std::vector<PageImage> Get(std::span<const PageKey> keys,
                                     TierClock::time_point deadline) = 0;

  // Which of the keys are there now, as far as the tier knows by the deadline. What waits to be
  // written is not there yet: it may yet be dropped.
  virtual std::vector<bool> Contains(std::span<const PageKey> keys,
                                     TierClock::time_point deadline) = 0;
  // Whether it waits to be written, or is being written.
  virtual bool IsQueued(const PageKey& key) const = 0;

  // How long Get of so many pages is expected to take, learned from those before. Callers compare
  // it with the time that computing the pages would take. 0 while nothing is known.
  virtual double ExpectedSeconds(size_t num_pages) const = 0;

  // Waits until what has been put before is written or dropped; false at the deadline. For a
  // graceful stop.
  virtual bool Flush(TierClock::time_point deadline) = 0;

  virtual TierStats Stats() const = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_TIER_H_
