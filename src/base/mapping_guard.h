// MappingGuard: what happens when somebody shortens a file that is mapped. Reading a page that is
// gone raises SIGBUS, which would end the process. For mappings that have a guard the page becomes
// zeros instead, and the guard says so: whoever reads checks it, or a checksum, and reports an
// error.
//
// The first guard installs a handler for SIGBUS. Faults elsewhere go to the handler that was there
// before.

#ifndef VARVE_BASE_MAPPING_GUARD_H_
#define VARVE_BASE_MAPPING_GUARD_H_

#include <atomic>
#include <cstddef>
#include <span>

namespace varve {

class MappingGuard {
 public:
  // The mapping stays until the guard is gone. More than kMaxGuards at a time are not guarded.
  static constexpr size_t kMaxGuards = 1024;
  explicit MappingGuard(std::span<const std::byte> mapping);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  // Whether bytes were missing when they were read.
  bool damaged() const { return damaged_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> damaged_ = false;
  size_t place_;  // in the table of the handler; kMaxGuards: in none
};

}  // namespace varve

#endif  // VARVE_BASE_MAPPING_GUARD_H_
