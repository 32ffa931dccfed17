// Where slabs come from by default: anonymous mappings of this process.

#include <sys/mman.h>

#include "pages/page_pool.h"

namespace varve {
namespace {

// Slabs are aligned to 2 MiB and ask for huge pages: attention walks over gigabytes in strips of a
// few KiB, and with 4 KiB pages a good part of its time goes into address translation.
class AnonymousMemory final : public PageMemory {
 public:
  std::byte* Map(size_t bytes) override {
    const size_t padded = bytes + kSlabGranule;
    void* address = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    auto* begin = static_cast<std::byte*>(address);
    std::byte* aligned = AlignUp(begin);
    if (aligned > begin) munmap(begin, aligned - begin);
    const size_t tail = begin + padded - (aligned + bytes);
    if (tail > 0) munmap(aligned + bytes, tail);
    madvise(aligned, bytes, MADV_HUGEPAGE);
    return aligned;
  }
  void Discard(std::byte* address, size_t bytes) override {
    // The kernel must not fill the hole again by making the region huge once more.
    std::byte* begin = AlignUp(address - kSlabGranule + 1);
    madvise(begin, AlignUp(address + bytes) - begin, MADV_NOHUGEPAGE);
    madvise(address, bytes, MADV_DONTNEED);
  }
  void Unmap(std::byte* address, size_t bytes) override { munmap(address, bytes); }

 private:
  static std::byte* AlignUp(std::byte* address) {
    const uintptr_t value = reinterpret_cast<uintptr_t>(address);
    return address + (kSlabGranule - value % kSlabGranule) % kSlabGranule;
  }
};

}  // namespace

PageMemory* SystemPageMemory() {
  static AnonymousMemory memory;
  return &memory;
}

}  // namespace varve
