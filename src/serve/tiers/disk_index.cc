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

const std::pair<const uint64_t, IndexedSegment>* DiskIndex::MostDead() const {
  const auto most = std::max_element(
      segments_.begin(), segments_.end(),
      [](const auto& a, const auto& b) { return a.second.dead_bytes() < b.second.dead_bytes(); });
  return most != segments_.end() ? &*most : nullptr;
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

std::optional<DiskIndex::Least> DiskIndex::LeastValuable() const {
  if (ranks_.empty()) return std::nullopt;
  return Least{std::get<2>(*ranks_.begin()), std::get<0>(*ranks_.begin())};
}

uint64_t DiskIndex::FileBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, segment] : segments_) bytes += segment.file->size();
  return bytes;
}

}  // namespace varve::serve
