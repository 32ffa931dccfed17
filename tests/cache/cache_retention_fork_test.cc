// A page that several sequences share is let go of by one and stays whole for the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_retention_fork_test {

CacheShape Shape() {
  return ShapeOf({.layers = 2, .kv_heads = 8, .group = 1, .key_dim = 64, .value_dim = 64});
}

std::string PlanOf(const std::string& policy) {
  return "evict=" + policy + ",ratio=2.5,sink=16,recent=32,trigger=256,every=16";
}

uint64_t UnionOfPages(const RetentionRun& run, std::initializer_list<SequenceId> ids, int64_t own) {
  uint64_t count = 0;
  for (int layer = 0; layer < 2; ++layer) {
    std::set<int64_t> shared;
    for (SequenceId id : ids) {
      for (int64_t first : run.PagesOf(id, layer)) {
        if (first < own) shared.insert(first);
        if (first >= own) ++count;
      }
    }
    count += shared.size();
  }
  return count;
}

TEST(CacheRetentionFork, APageDroppedByOneStaysWholeForTheOther) {
  const RetentionWork work(Shape(), 400), other(Shape(), 400, 31);
  RetentionRun run(Shape(), PlanOf("h2o"), work);
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 240);
  const SequenceId b = *run.cache->Fork(a);
  const std::vector<float> rows = ReadAll(*run.cache, b);
  run.Feed(a, 400);
  EXPECT_LT(run.PagesOf(a, 0).size(), 15u);
  EXPECT_EQ(run.PagesOf(b, 0).size(), 15u);
  EXPECT_TRUE(ReadAll(*run.cache, b) == rows);
  EXPECT_EQ(run.cache->Stats().pages, UnionOfPages(run, {a, b}, 240));

  // The other goes its own way; what neither holds is freed.
  run.work = &other;
  run.Feed(b, 400);
  EXPECT_LT(run.PagesOf(b, 0).size(), 15u);
  EXPECT_EQ(run.cache->Stats().pages, UnionOfPages(run, {a, b}, 240));
  EXPECT_EQ(run.cache->Stats().bytes_used, run.cache->Stats().pages * 16 * 8 * 128 * 2);
  ASSERT_OK(run.cache->Free(a));
  EXPECT_EQ(run.cache->Stats().pages, UnionOfPages(run, {b}, 240));
  ASSERT_OK(run.cache->Free(b));
  EXPECT_EQ(run.cache->Stats().bytes_used, 0u);
}

TEST(CacheRetentionFork, ForksThatSeeTheSameDecideTheSame) {
  const RetentionWork work(Shape(), 420);
  for (const char* policy : {"h2o", "tova", "random"}) {
    RetentionRun run(Shape(), PlanOf(policy), work);
    const SequenceId a = *run.cache->CreateSequence();
    run.Feed(a, 263);  // in the middle of a bucket, after a plan
    const SequenceId b = *run.cache->Fork(a);
    run.Feed(a, 380);
    run.Feed(b, 380);
    EXPECT_EQ(run.PagesOf(a, 0), run.PagesOf(b, 0)) << policy;
    EXPECT_EQ(run.PagesOf(a, 1), run.PagesOf(b, 1)) << policy;
    EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*run.cache, b)) << policy;
  }
}

TEST(CacheRetentionFork, ASharedPageIsDemotedWhenAllItsHoldersAgree) {
  const RetentionWork work(Shape(), 400);
  RetentionRun run(Shape(), PlanOf("demote"), work);
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 240);
  const SequenceId b = *run.cache->Fork(a);
  const std::vector<float> rows = ReadAll(*run.cache, b);
  run.Feed(a, 400);
  EXPECT_GT(run.cache->Report().retention.pages_demoted, 0u);
  for (const RetentionEvent& event : run.log.events) {
    for (const PageDecision& page : event.pages) {
      if (page.page.first_position >= 240) continue;
      EXPECT_NE(page.fate, PageFate::kDemoted);
      EXPECT_EQ(page.rung, page.fate == PageFate::kKept ? "f16" : "");
    }
  }
  EXPECT_TRUE(ReadAll(*run.cache, b) == rows);

  // The other reads the same and comes to wish the same. It holds what a lone sequence would.
  run.Feed(b, 400);
  RetentionRun lone(Shape(), PlanOf("demote"), work);
  const SequenceId e = *lone.cache->CreateSequence();
  lone.Feed(e, 400);
  EXPECT_EQ(run.PagesOf(b, 0), lone.PagesOf(e, 0));
  EXPECT_EQ(run.PagesOf(a, 1), lone.PagesOf(e, 1));
  const auto demoted_below = [](const RetentionRun& of, SequenceId id) {
    return std::any_of(
        of.log.events.begin(), of.log.events.end(), [&](const RetentionEvent& event) {
          return event.sequence == id &&
                 std::any_of(event.pages.begin(), event.pages.end(), [](const PageDecision& page) {
                   return page.page.first_position < 240 && page.fate == PageFate::kDemoted;
                 });
        });
  };
  EXPECT_TRUE(demoted_below(run, b));

  // Once the other is gone, what is left of them may be demoted.
  RetentionRun alone(Shape(), PlanOf("demote"), work);
  const SequenceId c = *alone.cache->CreateSequence();
  alone.Feed(c, 240);
  const SequenceId d = *alone.cache->Fork(c);
  alone.Feed(c, 241);
  ASSERT_OK(alone.cache->Free(d));
  alone.Feed(c, 400);
  EXPECT_TRUE(demoted_below(alone, c));
}

TEST(CacheRetentionFork, APlanThatIsPendingAtTheForkIsCarriedOutByBothAndEncodesOnce) {
  const RetentionWork work(Shape(), 420);
  RetentionRun run(Shape(), PlanOf("demote"), work);
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 256);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(a, 257);
  EXPECT_EQ(run.cache->Stats().pages_demoted, 0u);  // the other has not agreed yet
  run.Feed(b, 257);
  EXPECT_EQ(run.PagesOf(a, 0), run.PagesOf(b, 0));
  const uint64_t encoded = run.cache->Stats().pages_demoted;
  EXPECT_GT(encoded, 0u);
  // The first one takes over what the second has encoded, at its next plan.
  run.Feed(a, 273);
  EXPECT_EQ(run.cache->Report().pages_adopted, encoded);
}

}  // namespace cache_retention_fork_test
}  // namespace varve
