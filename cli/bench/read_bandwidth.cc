#include "cli/bench/read_bandwidth.h"

#include <atomic>
#include <cstring>

#include "base/align.h"
#include "base/timer.h"

namespace varve::cli {
namespace {

constexpr size_t kTaskBytes = size_t{256} << 10;  // the size of an f16 page of 8 heads x 128

}  // namespace

ReadBandwidth::ReadBandwidth(size_t bytes) : bytes_(AlignUp(bytes, kTaskBytes)), buffer_(bytes_) {
  std::memset(buffer_.data(), 1, bytes_);
}

double ReadBandwidth::Measure(Executor& executor) {
  std::atomic<uint64_t> total{0};
  const Timer timer;
  executor.ParallelFor(bytes_ / kTaskBytes, [&](size_t task, int) {
    const uint64_t* words =
        reinterpret_cast<const uint64_t*>(buffer_.data()) + task * (kTaskBytes / 8);
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
  const double seconds = timer.seconds();
  sink_ += total.load();
  return static_cast<double>(bytes_) / seconds;
}

}  // namespace varve::cli
