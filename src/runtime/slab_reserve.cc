#include "runtime/slab_reserve.h"

#include <sys/mman.h>

#include <utility>

namespace varve {
namespace {

// Anonymous memory on small pages: what is discarded is gone to the byte, and the caches of speech
// are too small for huge pages to tell.
class PlainMemory final : public PageMemory {
 public:
  std::byte* Map(size_t bytes) override {
    void* address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    madvise(address, bytes, MADV_NOHUGEPAGE);
    return static_cast<std::byte*>(address);
  }
  void Discard(std::byte* address, size_t bytes) override {
    madvise(address, bytes, MADV_DONTNEED);
  }
  void Unmap(std::byte* address, size_t bytes) override { munmap(address, bytes); }
};

// Destroyed from the last member to the first: the pool goes before its memory.
struct ReservingPool {
  PlainMemory plain;
  SlabReserve reserve;
  std::shared_ptr<PagePool> pool;

  ReservingPool(uint64_t reserve_bytes, PageMemory* under)
      : reserve(under != nullptr ? *under : plain, reserve_bytes),
        pool(MakePagePool(0, &reserve)) {}
};

}  // namespace

SlabReserve::~SlabReserve() {
  for (const auto& [bytes, address] : kept_) under_.Unmap(address, bytes);
}

std::byte* SlabReserve::Map(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(bytes); found != kept_.end()) {
      std::byte* address = found->second;
      kept_.erase(found);
      kept_bytes_ -= bytes;
      return address;
    }
  }
  return under_.Map(bytes);
}

void SlabReserve::Unmap(std::byte* address, size_t bytes) {
  bool keeps = false;
  {
    const std::lock_guard lock(mutex_);
    keeps = kept_bytes_ + bytes <= max_bytes_;
    if (keeps) kept_bytes_ += bytes;
  }
  if (!keeps) return under_.Unmap(address, bytes);
  under_.Discard(address, bytes);
  const std::lock_guard lock(mutex_);
  kept_.emplace(bytes, address);
}

std::shared_ptr<PagePool> MakeReservingPool(uint64_t reserve_bytes, PageMemory* under) {
  auto whole = std::make_shared<ReservingPool>(reserve_bytes, under);
  PagePool* pool = whole->pool.get();
  return {std::move(whole), pool};
}

}  // namespace varve
