#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "varve/executor.h"

namespace varve {
namespace thread_pool_test {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    auto pool = MakeThreadPool(threads);
    EXPECT_EQ(pool->num_threads(), threads);
    for (size_t count : {0u, 1u, 2u, 3u, 1000u}) {
      std::vector<std::atomic<int>> hits(count);
      pool->ParallelFor(count, [&](size_t i, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        hits[i].fetch_add(1);
      });
      for (auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, WorkersOfOneNumberNeverOverlap) {
  auto pool = MakeThreadPool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> overlap{false};
  for (int round = 0; round < 200; ++round) {
    pool->ParallelFor(16, [&](size_t, int worker) {
      if (inside[worker].fetch_add(1) != 0) overlap = true;
      inside[worker].fetch_sub(1);
    });
  }
  EXPECT_FALSE(overlap);
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  auto pool = MakeThreadPool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // past the spin
    std::atomic<int> sum{0};
    pool->ParallelFor(100, [&](size_t i, int) { sum += static_cast<int>(i); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

// Exits with 7 if a pool under a limit of address space has fewer threads than asked for, and
// works.
[[noreturn]] void UsePoolUnderALimit() {
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = rlim_t{300} << 20;  // some 30 stacks of 8 MiB
  setrlimit(RLIMIT_AS, &limit);
  auto pool = MakeThreadPool(1024);
  std::atomic<int> sum{0};
  pool->ParallelFor(100, [&](size_t i, int) { sum += static_cast<int>(i); });
  std::exit(pool->num_threads() < 1024 && sum.load() == 4950 ? 7 : 1);
}

TEST(ThreadPool, WorksWithTheThreadsThatTheSystemGives) {
#ifdef VARVE_SANITIZED
  GTEST_SKIP() << "a sanitizer needs address space of its own";
#endif
  // In a child process: the limit would starve the tests to come.
  EXPECT_EXIT(UsePoolUnderALimit(), testing::ExitedWithCode(7), "");
}

}  // namespace thread_pool_test
}  // namespace varve
