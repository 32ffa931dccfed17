// The machine's read bandwidth, measured in the same run as what it is compared with.

#ifndef VARVE_CLI_BENCH_READ_BANDWIDTH_H_
#define VARVE_CLI_BENCH_READ_BANDWIDTH_H_

#include <cstddef>
#include <cstdint>

#include "cli/bench/huge_buffer.h"
#include "varve/executor.h"

namespace varve::cli {

// A buffer beyond the caches that all threads of an executor read once per measurement.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(size_t bytes);

  // Bytes per second of one pass.
  double Measure(Executor& executor);

 private:
  size_t bytes_;
  HugeBuffer buffer_;
  uint64_t sink_ = 0;  // keeps the reads alive
};

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_READ_BANDWIDTH_H_
