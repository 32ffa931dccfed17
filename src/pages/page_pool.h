// PagePool: memory for pages, in slots of slabs, one size class per page size.
//
// A slot is a multiple of 256 bytes, a slab a mapping of 2 MiB or more that holds slots of one size
// back to back. Memory comes and goes in system pages of 4 KiB, and a slot may share its first and
// its last one with its neighbours. So the pool knows of every system page how many slots keep it.
//
// A slot that is given back stays resident ("warm") while the pool's warm bytes are below a small
// bound, so that the coming and going of open pages costs no page faults; beyond the bound the
// system pages that no other slot keeps are discarded at once, and a slab without a used slot is
// unmapped. Cold slots are taken lowest first, which closes the holes of a slab: a slot in a hole
// has neighbours to share with. bytes_held() is what the process really keeps for pages: every
// system page with a used or a warm slot in it, whole.
//
// Taking and giving back touch the counters of the slot's own system pages, nothing else.
//
// Thread-safe: caches on several threads may share a pool (PoolShare). Give every slot back before
// the pool is destroyed.

#ifndef VARVE_PAGES_PAGE_POOL_H_
#define VARVE_PAGES_PAGE_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/slot_bytes.h"
#include "varve/page_memory.h"
#include "varve/status.h"

namespace varve {

inline constexpr size_t kSlabGranule = size_t{2} << 20;

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
  // Returns the SlotBytes of the slot.
  size_t GiveBack(const PageSlot& slot);

  // Ok if bytes_held() may grow by `bytes`, a sum of MostSlotBytes, under the cap. Discards warm
  // slots where that makes room. Takes that stay within the sum then succeed, unless the system
  // refuses a slab or another cache of the pool is faster.
  Status CheckRoom(uint64_t bytes);

  // The same, if every warm slot were given up; changes nothing.
  bool HasRoom(uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    return max_bytes_ == 0 || outside_bytes_ + used_pages_bytes_ + bytes <= max_bytes_;
  }

  // Gives every warm slot back to the system.
  void DropWarm() {
    const std::lock_guard lock(mutex_);
    while (warm_ != nullptr) TrimWarm();
  }

  // Bytes that are held elsewhere and count under the cap; who holds them adds and subtracts.
  std::atomic<uint64_t>* outside_bytes() { return &outside_bytes_; }

  PageMemory* memory() const { return memory_; }
  bool has_cap() const { return max_bytes_ != 0; }
  uint64_t bytes_held() const {
    const std::lock_guard lock(mutex_);
    return Held();
  }
  // The same with what is held outside.
  uint64_t bytes_under_cap() const { return bytes_held() + outside_bytes_; }
  // The sum of SlotBytes over the used slots.
  uint64_t bytes_in_slots() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
  }
  size_t num_slabs() const {
    const std::lock_guard lock(mutex_);
    return num_slabs_;
  }

 private:
  struct SizeClass {
    size_t slot_bytes = 0;
    uint32_t slots_per_slab = 0;
    PageSlab* partial = nullptr;  // slabs with a free slot, any order
  };

  // What follows requires the mutex.
  uint64_t Held() const { return used_pages_bytes_ + warm_bytes_; }
  SizeClass& ClassOf(size_t slot_bytes);
  Status AddSlab(SizeClass& size_class);
  void RemoveSlab(PageSlab* slab);
  // By how much Held() grows when the next slot of a class is taken.
  static uint64_t NextCost(const SizeClass& size_class);
  bool Fits(uint64_t bytes) const;
  Status Refusal(uint64_t bytes) const;
  // Free, warm, used and back: one of the slot's states to the next, with the counters.
  void Use(PageSlab* slab, uint32_t index);
  void Unuse(PageSlab* slab, uint32_t index);
  void AddWarm(PageSlab* slab, uint32_t index);
  uint32_t RemoveWarm(PageSlab* slab);
  // Gives the warm slot that was last given back to the system, with its slab if that is empty.
  void TrimWarm();
  uint64_t WarmLimit() const;

  PageMemory* const memory_;
  const uint64_t max_bytes_;
  std::atomic<uint64_t> outside_bytes_ = 0;
  mutable std::mutex mutex_;       // of what follows
  uint64_t used_bytes_ = 0;        // slots in use
  uint64_t used_pages_bytes_ = 0;  // system pages with a slot in use
  uint64_t warm_bytes_ = 0;        // system pages with a warm slot and none in use
  size_t num_slabs_ = 0;
  std::unordered_map<size_t, std::unique_ptr<SizeClass>> classes_;
  PageSlab* warm_ = nullptr;  // slabs with a warm slot, the last used first

  friend struct PageSlab;
};

// One cache's part in a pool that others may share. Owned by the cache; not thread-safe.
class PoolShare {
 public:
  // A pool for this cache alone.
  PoolShare(PageMemory* memory, uint64_t max_bytes)
      : pool_(std::make_shared<PagePool>(memory, max_bytes)), shared_(false) {}
  // A part in one that others may have parts in, too.
  explicit PoolShare(std::shared_ptr<PagePool> pool) : pool_(std::move(pool)), shared_(true) {}

  Result<PageSlot> Take(size_t bytes) {
    Result<PageSlot> slot = pool_->Take(bytes);
    if (slot.ok()) slot_bytes_ += SlotBytes(bytes);
    return slot;
  }
  void GiveBack(const PageSlot& slot) { slot_bytes_ -= pool_->GiveBack(slot); }
  Status CheckRoom(uint64_t bytes) { return pool_->CheckRoom(bytes); }
  bool HasRoom(uint64_t bytes) const { return pool_->HasRoom(bytes); }
  void DropWarm() { pool_->DropWarm(); }
  bool has_cap() const { return pool_->has_cap(); }
  PageMemory* memory() const { return pool_->memory(); }
  std::atomic<uint64_t>* outside_bytes() { return pool_->outside_bytes(); }
  // What is resident for this cache; of a shared pool its slots, as warm ones belong to nobody.
  uint64_t bytes_held() const { return shared_ ? slot_bytes_ : pool_->bytes_held(); }

 private:
  std::shared_ptr<PagePool> pool_;
  bool shared_;
  uint64_t slot_bytes_ = 0;  // of this cache's slots
};

// Anonymous mappings of this process, one instance for all caches. Thread-safe.
PageMemory* SystemPageMemory();

}  // namespace varve

#endif  // VARVE_PAGES_PAGE_POOL_H_
