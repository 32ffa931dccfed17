#include "cli/read_bandwidth.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <new>

namespace varve::cli {
namespace {

constexpr size_t kTaskBytes = size_t{256} << 10;  // the size of an f16 page of 8 heads x 128

}  // namespace

ReadBandwidth::ReadBandwidth(size_t bytes)
    : bytes_((bytes + kTaskBytes - 1) / kTaskBytes * kTaskBytes) {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  madvise(address, bytes_, MADV_HUGEPAGE);  // the best case: no time lost on page tables
  std::memset(address, 1, bytes_);
  data_ = static_cast<uint64_t*>(address);
}

ReadBandwidth::~ReadBandwidth() { munmap(data_, bytes_); }

double ReadBandwidth::Measure(Executor& executor) {
  std::atomic<uint64_t> total{0};
  const auto start = std::chrono::steady_clock::now();
  executor.ParallelFor(bytes_ / kTaskBytes, [&](size_t task, int) {
    const uint64_t* words = data_ + task * (kTaskBytes / 8);
    // Eight independent sums: the adds never limit the loads. Lines are fetched
    // 4 KiB ahead, as the attention kernels do.
    uint64_t sums[8] = {};
    for (size_t i = 0; i < kTaskBytes / 8; i += 8) {
      __builtin_prefetch(words + i + 512, 0, 2);
      for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    uint64_t sum = 0;
    for (uint64_t s : sums) sum += s;
    total.fetch_add(sum, std::memory_order_relaxed);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  sink_ += total.load();
  return static_cast<double>(bytes_) / seconds.count();
}

}  // namespace varve::cli
