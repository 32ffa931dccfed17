#include "base/run_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>

namespace varve {
namespace run_parallel_test {

TEST(RunParallel, RunsEveryTaskOnce) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(3);
  std::atomic<int> sum = 0;
  RunParallel(*executor, 100, [&](size_t index, int) { sum += static_cast<int>(index); });
  EXPECT_EQ(sum, 4950);
}

TEST(RunParallel, AnExceptionComesBackToTheCaller) {
  for (const int threads : {1, 3}) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    const auto fail_at = [&](size_t bad) {
      RunParallel(*executor, 50, [&](size_t index, int) {
        if (index >= bad) throw std::bad_alloc();
      });
    };
    for (const size_t bad : {0, 17, 49}) EXPECT_THROW(fail_at(bad), std::bad_alloc);
    EXPECT_NO_THROW(fail_at(50));  // and the executor goes on
  }
}

}  // namespace run_parallel_test
}  // namespace varve
