// DiskIndex: which pages are in which segments of a disk tier, and which is worth least. Built anew
// from the segments whenever a folder is opened.
//
// Bytes are those of records, headers included. Not thread-safe.

#ifndef VARVE_SERVE_TIERS_DISK_INDEX_H_
#define VARVE_SERVE_TIERS_DISK_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "serve/tiers/page_tier.h"
#include "serve/tiers/segment_file.h"

namespace varve::serve {

struct IndexedSegment {
  std::shared_ptr<SegmentFile> file;
  uint64_t live_bytes = 0;
  std::map<uint64_t, PageKey> live;  // by offset

  uint64_t dead_bytes() const { return file->size() - kSegmentHeadBytes - live_bytes; }
};

struct IndexedPage {
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  double value = 0;
  uint64_t order = 0;  // of pages with equal values those that came first go first
};

class DiskIndex {
 public:
  void AddSegment(uint64_t id, std::shared_ptr<SegmentFile> file);
  void RemoveSegment(uint64_t id);  // with its pages
  const std::map<uint64_t, IndexedSegment>& segments() const { return segments_; }
  // The segment of which a share of 1 / `share` is dead first if pages go in the order of their
  // values, and those of its pages that have gone by then; pages worth more than `value` stay. None
  // if that is not enough.
  struct Victim {
    uint64_t segment = 0;
    std::vector<PageKey> pages;
  };
  std::optional<Victim> FindVictim(uint64_t share, double value) const;

  // A page that is there is replaced.
  void Add(const PageKey& key, uint64_t segment, uint64_t offset, uint64_t bytes, double value);
  void Remove(const PageKey& key);
  void SetValue(const PageKey& key, double value);
  const IndexedPage* Find(const PageKey& key) const;

  size_t num_pages() const { return pages_.size(); }
  uint64_t live_bytes() const { return live_bytes_; }
  // Of the files: what counts against the budget.
  uint64_t FileBytes() const;

 private:
  using Rank = std::tuple<double, uint64_t, PageKey>;

  std::map<uint64_t, IndexedSegment> segments_;
  std::unordered_map<PageKey, IndexedPage, PageKeyHash> pages_;
  std::set<Rank> ranks_;
  uint64_t live_bytes_ = 0;
  uint64_t next_order_ = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_DISK_INDEX_H_
