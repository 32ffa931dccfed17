#include "cli/bench/bench_workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "pages/page_pool.h"

namespace varve::cli {
namespace bench_workload_test {

constexpr WorkloadShape kShape = {6, 3, 32, 70, 1};

TEST(BenchWorkload, RowsAreReadOnTheCallingThread) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const Workload workload(kShape, *executor);
  const size_t dim = static_cast<size_t>(kShape.dim);
  int calls = 0;
  Result<std::vector<double>> again = workload.Reference(
      *executor, [&, caller = std::this_thread::get_id()](int head, Part part, float* rows) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        ++calls;
        const std::vector<float>& from = part == Part::kKey ? workload.keys() : workload.values();
        for (size_t t = 0; t < static_cast<size_t>(kShape.ctx); ++t) {
          std::copy_n(from.data() + (t * kShape.kv_heads + head) * dim, dim, rows + t * dim);
        }
        return Status();
      });
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(calls, 2 * kShape.kv_heads);
  EXPECT_EQ(*again, workload.exact());
}

TEST(BenchWorkload, TheExactAnswerDoesNotDependOnThreads) {
  EXPECT_EQ(Workload(kShape, *MakeThreadPool(1)).exact(),
            Workload(kShape, *MakeThreadPool(3)).exact());
}

TEST(BenchWorkload, AFailedReadFailsTheReference) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const Workload workload(kShape, *executor);
  const auto read = [](int head, Part, float*) { return head == 2 ? Internal("x") : Status(); };
  EXPECT_EQ(workload.Reference(*executor, read).status().code(), StatusCode::kInternal);
}

TEST(BenchWorkload, HeldBytesCountSlotsAndTables) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const Workload workload({1, 1, 64, 64, 1}, *executor);
  Result<FilledCache> filled = FillCache(workload, *ParsePlan("q4_0,exact=0"), 2, 3, *executor);
  ASSERT_TRUE(filled.ok()) << filled.status().message();
  const uint64_t payload = 64 * 2 * 36;  // two blocks of 18 bytes per row
  EXPECT_EQ(filled->layer_bytes, 3 * payload);
  EXPECT_EQ(filled->layer_held,
            3 * SlotBytes(payload) + filled->cache->Stats().bytes_tables / filled->layers);
}

TEST(BenchWorkload, TheEstimateIsThePayloadOfALayer) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const Workload workload(kShape, *executor);
  const Plan plan = *ParsePlan("k=q8_0,v=q4_0,exact=0");
  EXPECT_EQ(*EstimateLayerBytes(kShape, plan),
            FillCache(workload, plan, 2, 1, *executor)->layer_bytes);
}

TEST(BenchWorkload, NotANumberIsAnInfiniteError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(CompareOutputs({1.0f, nan}, {1.0, 1.0}).max, HUGE_VAL);
}

}  // namespace bench_workload_test
}  // namespace varve::cli
