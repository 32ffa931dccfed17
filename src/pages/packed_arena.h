// PackedArena: memory for packed pages, whose sizes are all different.
//
// Blocks are cut out of regions (some 32 blocks; where there is no room for so many, half as many,
// down to one) by best fit, in units of 64 bytes;
// neighbours that are free become one. The arena knows how many bytes of every 4 KiB page of a
// region are in use: a page without any goes back to the system at once, and so does a region.
// bytes_held() therefore is what the process keeps.
//
// Not thread-safe. Give everything back before the arena is destroyed.

#ifndef VARVE_PAGES_PACKED_ARENA_H_
#define VARVE_PAGES_PACKED_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "pages/page_pool.h"
#include "varve/page_memory.h"
#include "varve/status.h"

namespace varve {

class PackedArena {
 public:
  // `total`, if any, is kept at the sum of bytes_held() over the arenas that share it. Regions are
  // multiples of `granule`: a small one uses up a disk or a cap to its last pages.
  explicit PackedArena(PageMemory* memory, std::atomic<uint64_t>* total = nullptr,
                       size_t granule = kSlabGranule)
      : memory_(memory), total_(total), granule_(granule) {}
  ~PackedArena();
  PackedArena(const PackedArena&) = delete;
  PackedArena& operator=(const PackedArena&) = delete;

  // A block of at least `bytes` > 0, aligned to 64; kOutOfMemory when the system has none.
  Result<std::byte*> Take(size_t bytes);
  // `bytes` as it was taken. Needs no memory: what remembers the free block was made with it.
  void GiveBack(std::byte* block, size_t bytes) noexcept;

  // The most by which bytes_held() may grow when a block of `bytes` is taken.
  static size_t MostBytes(size_t bytes);
  uint64_t bytes_held() const { return held_bytes_; }
  uint64_t bytes_used() const { return used_bytes_; }
  size_t num_regions() const { return regions_.size(); }

 private:
  struct Region {
    std::byte* data = nullptr;
    size_t bytes = 0;
    size_t used = 0;
    std::vector<uint16_t> page_used;  // bytes of each 4 KiB page that belong to a block
  };
  using FreeByAddress = std::map<std::byte*, size_t>;
  using FreeBySize = std::set<std::pair<size_t, std::byte*>>;
  // What remembers a free block, while there is none for it.
  struct Spare {
    FreeByAddress::node_type by_address;
    FreeBySize::node_type by_size;
  };

  Status AddRegion(size_t bytes);
  Region& RegionOf(std::byte* block);
  // One more spare, and room for all that may ever be spare at once. May throw; changes nothing
  // else.
  void AddSpare();
  void DropSpare() noexcept;
  // From a spare, and to one.
  void AddFree(std::byte* begin, size_t bytes) noexcept;
  void RemoveFree(std::byte* begin, size_t bytes) noexcept;
  // Adds to, or takes from, what is used of the pages that the block touches.
  void Use(Region& region, std::byte* block, size_t bytes);
  void Unuse(Region& region, std::byte* block, size_t bytes) noexcept;

  void AddHeld(uint64_t bytes);
  void RemoveHeld(uint64_t bytes);

  PageMemory* memory_;
  std::atomic<uint64_t>* total_;
  size_t granule_;
  std::map<std::byte*, Region> regions_;  // by address
  FreeByAddress free_;                    // never across regions
  FreeBySize free_by_size_;
  std::vector<Spare> spares_;  // as many as blocks are taken
  uint64_t held_bytes_ = 0;
  uint64_t used_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_PAGES_PACKED_ARENA_H_
