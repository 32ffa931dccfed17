#include "pages/packed_arena.h"

#include <algorithm>
#include <string>

#include "base/align.h"
#include "base/slot_bytes.h"

namespace varve {
namespace {

constexpr size_t kUnit = 64;

// A region has room for so many blocks of the size that asks for it, up to a size. What is left at
// its end is too small for another one and yet, on huge pages, resident.
constexpr size_t kRegionBlocks = 32;
constexpr size_t kLargeRegion = size_t{64} << 20;

}  // namespace

PackedArena::~PackedArena() {
  RemoveHeld(held_bytes_);
  for (auto& [address, region] : regions_) memory_->Unmap(region.data, region.bytes);
}

void PackedArena::AddHeld(uint64_t bytes) {
  held_bytes_ += bytes;
  if (total_ != nullptr) *total_ += bytes;
}

void PackedArena::RemoveHeld(uint64_t bytes) {
  held_bytes_ -= bytes;
  if (total_ != nullptr) *total_ -= bytes;
}

size_t PackedArena::MostBytes(size_t bytes) {
  // It begins with the last unit of a system page.
  return AlignUp(AlignUp(bytes, kUnit) + kSystemPageBytes - kUnit, kSystemPageBytes);
}

Status PackedArena::AddRegion(size_t bytes) {
  Region region;
  region.bytes = AlignUp(bytes, granule_);
  region.page_used.resize(region.bytes / kSystemPageBytes);
  AddSpare();
  region.data = memory_->Map(region.bytes);
  if (region.data == nullptr) {
    DropSpare();
    return OutOfMemory("packed pages: the system has no " + std::to_string(region.bytes) +
                       " bytes");
  }
  std::byte* const data = region.data;
  const size_t mapped = region.bytes;
  try {
    regions_.emplace(data, std::move(region));
  } catch (...) {
    memory_->Unmap(data, mapped);
    DropSpare();
    throw;
  }
  AddFree(data, mapped);
  return Status();
}

PackedArena::Region& PackedArena::RegionOf(std::byte* block) {
  return std::prev(regions_.upper_bound(block))->second;
}

void PackedArena::AddSpare() {
  FreeByAddress by_address;
  FreeBySize by_size;
  by_address.emplace(nullptr, 0);
  by_size.emplace(0, nullptr);
  const size_t most = spares_.size() + free_.size() + 1;
  if (spares_.capacity() < most) spares_.reserve(2 * most);
  spares_.push_back({by_address.extract(by_address.begin()), by_size.extract(by_size.begin())});
}

void PackedArena::DropSpare() noexcept { spares_.pop_back(); }

void PackedArena::AddFree(std::byte* begin, size_t bytes) noexcept {
  Spare spare = std::move(spares_.back());
  spares_.pop_back();
  spare.by_address.key() = begin;
  spare.by_address.mapped() = bytes;
  spare.by_size.value() = {bytes, begin};
  free_.insert(std::move(spare.by_address));
  free_by_size_.insert(std::move(spare.by_size));
}

void PackedArena::RemoveFree(std::byte* begin, size_t bytes) noexcept {
  spares_.push_back({free_.extract(begin), free_by_size_.extract({bytes, begin})});
}

void PackedArena::Use(Region& region, std::byte* block, size_t bytes) {
  size_t offset = static_cast<size_t>(block - region.data);
  for (size_t left = bytes; left > 0;) {
    uint16_t& used = region.page_used[offset / kSystemPageBytes];
    const size_t here = std::min(left, kSystemPageBytes - offset % kSystemPageBytes);
    if (used == 0) AddHeld(kSystemPageBytes);
    used = static_cast<uint16_t>(used + here);
    offset += here;
    left -= here;
  }
  region.used += bytes;
  used_bytes_ += bytes;
}

void PackedArena::Unuse(Region& region, std::byte* block, size_t bytes) noexcept {
  size_t offset = static_cast<size_t>(block - region.data);
  size_t first_empty = 0;
  size_t num_empty = 0;
  for (size_t left = bytes; left > 0;) {
    const size_t page = offset / kSystemPageBytes;
    const size_t here = std::min(left, kSystemPageBytes - offset % kSystemPageBytes);
    region.page_used[page] = static_cast<uint16_t>(region.page_used[page] - here);
    if (region.page_used[page] == 0) {
      if (num_empty++ == 0) first_empty = page;
    }
    offset += here;
    left -= here;
  }
  region.used -= bytes;
  used_bytes_ -= bytes;
  RemoveHeld(num_empty * kSystemPageBytes);
  // Pages inside a block are its own: those that became empty lie side by side.
  if (num_empty > 0 && region.used > 0) {
    memory_->Discard(region.data + first_empty * kSystemPageBytes, num_empty * kSystemPageBytes);
  }
}

Result<std::byte*> PackedArena::Take(size_t bytes) {
  const size_t size = AlignUp(bytes, kUnit);
  AddSpare();  // for the block when it comes back
  auto found = free_by_size_.lower_bound({size, nullptr});
  if (found == free_by_size_.end()) {
    // Where there is no room for many blocks there may be for fewer.
    try {
      size_t region = std::max(size, std::min(kRegionBlocks * size, kLargeRegion));
      Status added = AddRegion(region);
      while (!added.ok() && region > size) {
        region = std::max(size, region / 2);
        added = AddRegion(region);
      }
      if (!added.ok()) {
        DropSpare();
        return added;
      }
    } catch (...) {
      DropSpare();
      throw;
    }
    found = free_by_size_.lower_bound({size, nullptr});
  }
  const auto [free_bytes, block] = *found;
  RemoveFree(block, free_bytes);
  if (free_bytes > size) {
    AddFree(block + size, free_bytes - size);
  } else {
    DropSpare();
  }
  Use(RegionOf(block), block, size);
  return block;
}

void PackedArena::GiveBack(std::byte* block, size_t bytes) noexcept {
  const size_t size = AlignUp(bytes, kUnit);
  Region& region = RegionOf(block);
  Unuse(region, block, size);
  std::byte* begin = block;
  size_t total = size;
  const auto next = free_.find(block + size);
  if (next != free_.end() && next->first < region.data + region.bytes) {
    total += next->second;
    const size_t next_bytes = next->second;
    RemoveFree(block + size, next_bytes);
    DropSpare();
  }
  const auto after = free_.lower_bound(block);
  if (after != free_.begin()) {
    const auto [before, before_bytes] = *std::prev(after);
    if (before >= region.data && before + before_bytes == block) {
      RemoveFree(before, before_bytes);
      DropSpare();
      begin = before;
      total += before_bytes;
    }
  }
  if (region.used > 0) {
    AddFree(begin, total);
    return;
  }
  DropSpare();
  memory_->Unmap(region.data, region.bytes);
  regions_.erase(region.data);
}

}  // namespace varve
