// HugeBuffer: memory on huge pages where the system has them, for benchmarks that compare with the
// read bandwidth: with small pages a good part of the time goes into page tables.

#ifndef VARVE_CLI_BENCH_HUGE_BUFFER_H_
#define VARVE_CLI_BENCH_HUGE_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

#include "base/align.h"

namespace varve::cli {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Zeroed. `huge` false asks for small pages, as a mapped file has them. Throws std::bad_alloc.
  explicit HugeBuffer(size_t bytes, bool huge = true) : bytes_(AlignUp(bytes, kHuge)) {
    void* address =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    madvise(address, bytes_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    data_ = static_cast<std::byte*>(address);
  }
  ~HugeBuffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  HugeBuffer(HugeBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_HUGE_BUFFER_H_
