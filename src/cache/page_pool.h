// PagePool: memory for pages, in slots of slabs, one size class per page size.
//
// A slot is a multiple of 4 KiB, a slab a mapping of 2 MiB or more that holds slots of one size.
// Taking and giving back are O(1). A slot that is given back stays resident ("warm") while the
// pool's warm bytes are below a small bound, so that the coming and going of open pages costs no
// page faults; beyond the bound its memory is discarded at once, and a slab without a used slot is
// unmapped. bytes_held() therefore is what the process really keeps for pages.
//
// Not thread-safe. The pool must outlive no slot: give everything back before it is destroyed.

#ifndef VARVE_CACHE_PAGE_POOL_H_
#define VARVE_CACHE_PAGE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

inline constexpr size_t kSlotGranule = 4096;
inline constexpr size_t kSlabGranule = size_t{2} << 20;

// Bytes that a page of `bytes` takes in the pool.
constexpr size_t SlotBytes(size_t bytes) {
  return (bytes + kSlotGranule - 1) / kSlotGranule * kSlotGranule;
}

struct PageSlab;

struct PageSlot {
  std::byte* data = nullptr;
  PageSlab* slab = nullptr;
  uint32_t index = 0;
};

class PagePool {
 public:
  // `memory` is not owned. max_bytes caps bytes_held(); 0 is no cap.
  PagePool(PageMemory* memory, uint64_t max_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A slot of at least `bytes`; its content is arbitrary. kOutOfMemory at the cap or when the
  // system has no memory.
  Result<PageSlot> Take(size_t bytes);
  void GiveBack(const PageSlot& slot);

  // Ok if slots of `bytes` in total (already rounded by SlotBytes) fit under the cap. Discards warm
  // slots where that makes room.
  Status CheckRoom(uint64_t bytes);

  // Bytes that are held elsewhere and count under the cap; read whenever room is checked.
  void CountOutside(const uint64_t* bytes) { outside_bytes_ = bytes; }

  uint64_t bytes_held() const { return used_bytes_ + warm_bytes_; }
  uint64_t bytes_in_slots() const { return used_bytes_; }
  size_t num_slabs() const { return num_slabs_; }

 private:
  struct SizeClass {
    size_t slot_bytes = 0;
    uint32_t slots_per_slab = 0;
    PageSlab* partial = nullptr;  // slabs with a free slot, any order
  };

  SizeClass& ClassOf(size_t slot_bytes);
  Result<PageSlab*> AddSlab(SizeClass& size_class);
  void RemoveSlab(PageSlab* slab);
  void AddWarm(PageSlab* slab, uint32_t index);
  uint32_t RemoveWarm(PageSlab* slab);
  // Gives the warm slot that was last given back to the system, with its slab if that is empty.
  void TrimWarm();
  uint64_t WarmLimit() const;

  PageMemory* memory_;
  uint64_t max_bytes_;
  uint64_t used_bytes_ = 0;
  uint64_t warm_bytes_ = 0;
  const uint64_t* outside_bytes_ = nullptr;
  size_t num_slabs_ = 0;
  std::unordered_map<size_t, std::unique_ptr<SizeClass>> classes_;
  PageSlab* warm_ = nullptr;  // slabs with a warm slot, the last used first

  friend struct PageSlab;
};

// Anonymous mappings of this process, one instance for all caches. Thread-safe.
PageMemory* SystemPageMemory();

}  // namespace varve

#endif  // VARVE_CACHE_PAGE_POOL_H_
