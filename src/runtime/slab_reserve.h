// SlabReserve: memory of pages that is kept for whoever comes next.
//
// A page pool gives a slab back to the system when its last page is freed. A program that works off
// one request after the other would map the same slabs again and again. This memory keeps what it
// is given back, up to a limit: the addresses, not the content, whose physical memory goes back to
// the system. Thread-safe.

#ifndef VARVE_RUNTIME_SLAB_RESERVE_H_
#define VARVE_RUNTIME_SLAB_RESERVE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "varve/page_memory.h"

namespace varve {

class SlabReserve final : public PageMemory {
 public:
  // `under` maps; it is not owned, must be thread-safe and outlive this.
  SlabReserve(PageMemory& under, uint64_t max_bytes) : under_(under), max_bytes_(max_bytes) {}
  ~SlabReserve() override;
  SlabReserve(const SlabReserve&) = delete;
  SlabReserve& operator=(const SlabReserve&) = delete;

  std::byte* Map(size_t bytes) override;
  void Discard(std::byte* address, size_t bytes) override { under_.Discard(address, bytes); }
  void Unmap(std::byte* address, size_t bytes) override;

 private:
  PageMemory& under_;
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::multimap<size_t, std::byte*> kept_;  // by size
  uint64_t kept_bytes_ = 0;
};

// A pool over such a memory, which lives as long as the pool. `under` as above; null: anonymous
// mappings.
std::shared_ptr<PagePool> MakeReservingPool(uint64_t reserve_bytes, PageMemory* under = nullptr);

}  // namespace varve

#endif  // VARVE_RUNTIME_SLAB_RESERVE_H_
