#include "cache/pack_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "pages/page_testing.h"
#include "tests/cache/packing_testing.h"

namespace varve {
namespace pack_workers_test {

// Notes the layers of the jobs, once it is open; the job of layer -1 throws.
class LayerWork final : public PackWork {
 public:
  void Run(const CacheShape&, PackJob& job) override {
    (void)WaitFor(open).ok();
    if (job.layer < 0) throw std::runtime_error("no memory");
    const std::lock_guard lock(mutex_);
    layers.push_back(job.layer);
  }
  std::atomic<bool> open{false};
  std::vector<int> layers;

 private:
  std::mutex mutex_;
};

std::unique_ptr<PackJob> JobOf(int layer, PackJob::Kind kind = PackJob::Kind::kPack) {
  auto job = std::make_unique<PackJob>();
  job->layer = layer;
  job->kind = kind;
  return job;
}

TEST(PackWorkers, DoesJobsInTheirOrderAndHandsThemBack) {
  LayerWork work;
  work.open = true;
  PackWorkers workers(SmallPageShape(), 1, 8, &work);
  for (const int layer : {3, 1, 2}) {
    std::unique_ptr<PackJob> job = JobOf(layer);
    ASSERT_TRUE(workers.Push(job));
  }
  workers.WaitUntilIdle();
  EXPECT_EQ(work.layers, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(workers.Collect().size(), 3u);
  EXPECT_TRUE(workers.Collect().empty());
}

TEST(PackWorkers, RefusesWhatTheQueueCannotHold) {
  LayerWork work;
  PackWorkers workers(SmallPageShape(), 1, 2, &work);
  int pushed = 0;
  // One may be with the worker already.
  for (int i = 0; i < 4; ++i) {
    std::unique_ptr<PackJob> job = JobOf(i);
    if (workers.Push(job)) {
      ++pushed;
    } else {
      EXPECT_NE(job, nullptr);  // untouched
    }
  }
  EXPECT_GE(pushed, 2);
  EXPECT_LE(pushed, 3);
  EXPECT_EQ(workers.queue_peak(), 2u);
  work.open = true;
  workers.WaitUntilIdle();
  EXPECT_EQ(static_cast<int>(workers.Collect().size()), pushed);
}

TEST(PackWorkers, TakesBackWhatNobodyHasBegun) {
  LayerWork work;
  PackWorkers workers(SmallPageShape(), 1, 8, &work);
  for (int i = 0; i < 4; ++i) {
    std::unique_ptr<PackJob> job =
        JobOf(i, i % 2 == 0 ? PackJob::Kind::kPack : PackJob::Kind::kRestore);
    ASSERT_TRUE(workers.Push(job));
  }
  const PackWorkers::JobList cancelled = workers.CancelWaiting(PackJob::Kind::kRestore);
  EXPECT_EQ(cancelled.size(), 2u);
  for (const auto& job : cancelled) EXPECT_EQ(job->kind, PackJob::Kind::kRestore);
  work.open = true;
  workers.WaitUntilIdle();
  EXPECT_EQ(work.layers, (std::vector<int>{0, 2}));
}

TEST(PackWorkers, AJobThatThrowsComesBackWithAStatusAndTheOthersGoOn) {
  LayerWork work;
  work.open = true;
  PackWorkers workers(SmallPageShape(), 1, 8, &work);
  for (const int layer : {-1, 5}) {
    std::unique_ptr<PackJob> job = JobOf(layer);
    ASSERT_TRUE(workers.Push(job));
  }
  workers.WaitUntilIdle();
  const PackWorkers::JobList done = workers.Collect();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done.front()->status.code(), StatusCode::kInternal);
  EXPECT_NE(done.front()->status.message().find("no memory"), std::string::npos);
  EXPECT_TRUE(done.back()->status.ok());
}

}  // namespace pack_workers_test
}  // namespace varve
