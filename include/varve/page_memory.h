// Where the memory of pages comes from, for those who must decide it.
//
// PageMemory gives and takes back large pieces of memory; the default maps anonymous memory of the
// process. PagePool cuts such pieces into pages. Every cache has a pool of its own, unless several
// share one through CacheOptions::pool: then they have one cap on their bytes together, and what
// one gives up another may take.

#ifndef VARVE_PAGE_MEMORY_H_
#define VARVE_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "varve/export.h"

namespace varve {

// A cache calls it from one thread at a time. One that serves several caches must be thread-safe.
class VARVE_API PageMemory {
 public:
  virtual ~PageMemory() = default;
  // `bytes` (a multiple of 2 MiB) of readable and writable memory, aligned to 4 KiB at least; null
  // when there is none.
  virtual std::byte* Map(size_t bytes) = 0;
  // Gives the physical memory of a part of a mapping back; the range stays usable, its content is
  // lost. `bytes` is a multiple of 4 KiB.
  virtual void Discard(std::byte* address, size_t bytes) = 0;
  virtual void Unmap(std::byte* address, size_t bytes) = 0;
};

// Opaque and thread-safe: caches of different threads may share one.
class PagePool;

// max_bytes caps what all caches of the pool hold together; 0 is no cap. `memory` is not owned and
// must outlive the pool; null: anonymous mappings.
VARVE_API std::shared_ptr<PagePool> MakePagePool(uint64_t max_bytes, PageMemory* memory = nullptr);

// What the pool holds at this moment for all its caches, packed pages included.
VARVE_API uint64_t PagePoolBytesHeld(const PagePool& pool);

}  // namespace varve

#endif  // VARVE_PAGE_MEMORY_H_
