#include "serve/tiers/disk_index.h"

#include <algorithm>
#include <utility>

namespace varve::serve {

void DiskIndex::AddSegment(uint64_t id, std::shared_ptr<SegmentFile> file) {
  segments_[id].file = std::move(file);
}

void DiskIndex::RemoveSegment(uint64_t id) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  while (!found->second.live.empty()) Remove(PageKey(found->second.live.begin()->second));
  segments_.erase(found);
}

std::optional<DiskIndex::Victim> DiskIndex::FindVictim(uint64_t share, double value) const {
  std::unordered_map<uint64_t, uint64_t> dead;  // by segment
  const auto is_enough = [&](uint64_t id, const IndexedSegment& segment) {
    return dead[id] * share >= segment.file->size();
  };
  for (const auto& [id, segment] : segments_) {
    dead[id] = segment.dead_bytes();
    if (is_enough(id, segment)) return Victim{id, {}};
  }
  for (auto rank = ranks_.begin(); rank != ranks_.end(); ++rank) {
    if (std::get<double>(*rank) > value) return std::nullopt;
    const IndexedPage& last = pages_.at(std::get<PageKey>(*rank));
    dead[last.segment] += last.bytes;
    if (!is_enough(last.segment, segments_.at(last.segment))) continue;
    Victim victim{last.segment, {}};
    for (auto gone = ranks_.begin();; ++gone) {
      const PageKey& key = std::get<PageKey>(*gone);
      if (pages_.at(key).segment == last.segment) victim.pages.push_back(key);
      if (gone == rank) return victim;
    }
  }
  return std::nullopt;
}

void DiskIndex::Add(const PageKey& key, uint64_t segment, uint64_t offset, uint64_t bytes,
                    double value) {
  Remove(key);
  const IndexedPage page = {segment, offset, bytes, value, next_order_++};
  pages_.emplace(key, page);
  ranks_.emplace(value, page.order, key);
  IndexedSegment& holder = segments_.at(segment);
  holder.live.emplace(offset, key);
  holder.live_bytes += bytes;
  live_bytes_ += bytes;
}

void DiskIndex::Remove(const PageKey& key) {
  const auto found = pages_.find(key);
  if (found == pages_.end()) return;
  const IndexedPage page = found->second;
  IndexedSegment& holder = segments_.at(page.segment);
  ranks_.erase({page.value, page.order, key});
  pages_.erase(found);
  holder.live.erase(page.offset);
  holder.live_bytes -= page.bytes;
  live_bytes_ -= page.bytes;
}

void DiskIndex::SetValue(const PageKey& key, double value) {
  const auto found = pages_.find(key);
  if (found == pages_.end()) return;
  IndexedPage& page = found->second;
  ranks_.erase({page.value, page.order, key});
  page.value = value;
  page.order = next_order_++;
  ranks_.emplace(value, page.order, key);
}

const IndexedPage* DiskIndex::Find(const PageKey& key) const {
  const auto found = pages_.find(key);
  return found != pages_.end() ? &found->second : nullptr;
}

uint64_t DiskIndex::FileBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, segment] : segments_) bytes += segment.file->size();
  return bytes;
}

}  // namespace varve::serve
