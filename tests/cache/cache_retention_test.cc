// When and where a policy acts: at the next step, in every layer of its range and in no other, and
// never by a plan that the table has outgrown.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_retention_test {

CacheShape Shape(int layers = 1) {
  return ShapeOf({.layers = layers, .kv_heads = 2, .group = 2, .key_dim = 32, .value_dim = 32});
}

constexpr const char* kPolicies[] = {"h2o", "window", "random", "tova", "snapkv", "demote"};

std::string PlanOf(const std::string& policy, const std::string& more = "") {
  return "evict=" + policy + ",ratio=2.5,sink=16,recent=32,trigger=128,every=16" + more;
}

std::vector<int64_t> AllPages(int64_t tokens) {
  std::vector<int64_t> pages;
  for (int64_t first = 0; first < tokens; first += 16) pages.push_back(first);
  return pages;
}

TEST(CacheRetention, ActsAtTheStepAfterTheTriggerAndNotBefore) {
  const RetentionWork work(Shape(), 200);
  for (const char* policy : {"h2o", "window", "random", "tova"}) {
    SCOPED_TRACE(policy);
    RetentionRun run(Shape(), PlanOf(policy), work);
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 128);
    EXPECT_EQ(run.PagesOf(id, 0), AllPages(128));
    EXPECT_TRUE(run.log.events.empty());
    EXPECT_EQ(run.cache->Report().retention.plans, 0u);
    run.Begin(id, 1);  // carried out here, before anything of the step is read
    EXPECT_EQ(run.log.events.size(), 1u);
    EXPECT_LT(run.PagesOf(id, 0).size(), 8u);
    run.cache->AbortStep();
    EXPECT_LT(run.PagesOf(id, 0).size(), 8u);
    run.Feed(id, 144);
    EXPECT_EQ(run.log.events.size(), 1u);
    run.Feed(id, 145);
    EXPECT_EQ(run.log.events.size(), 2u);
    EXPECT_EQ(run.log.events[0].next_position, 128);
    EXPECT_EQ(run.log.events[1].next_position, 144);
  }
}

TEST(CacheRetention, TheIntervalCountsTokensFromTheFirstMultipleAfterTheTrigger) {
  const RetentionWork work(Shape(), 220);
  RetentionRun run(Shape(), "evict=h2o,ratio=2.5,sink=16,recent=32,trigger=100,every=24", work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 220);
  std::vector<int64_t> positions;
  for (const RetentionEvent& event : run.log.events) positions.push_back(event.next_position);
  EXPECT_EQ(positions, (std::vector<int64_t>{120, 144, 168, 192, 216}));
}

TEST(CacheRetention, EveryLayerInRangeEvictsAndNoOther) {
  const CacheShape shape = Shape(8);
  const RetentionWork work(shape, 300);
  RetentionRun run(shape, "2-6: evict=h2o,ratio=2,sink=16,recent=32,trigger=256", work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 300);
  std::set<int> layers;
  for (const RetentionEvent& event : run.log.events) layers.insert(event.layer);
  EXPECT_EQ(layers, (std::set<int>{2, 3, 4, 5, 6}));
  std::set<std::vector<int64_t>> tables;
  for (int layer = 0; layer < 8; ++layer) {
    const bool in_range = layer >= 2 && layer <= 6;
    if (in_range) {
      EXPECT_LT(run.PagesOf(id, layer).size(), 12u) << layer;
      tables.insert(run.PagesOf(id, layer));
    } else {
      EXPECT_EQ(run.PagesOf(id, layer), AllPages(300)) << layer;
    }
  }
  EXPECT_GT(tables.size(), 1u);  // layers decide for themselves
  EXPECT_EQ(run.cache->Report().retention.layers, 5);
}

TEST(CacheRetention, FloorsAreKeptInEveryLayerByEveryPolicy) {
  const CacheShape shape = Shape(2);
  const RetentionWork work(shape, 400);
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    RetentionRun run(
        shape, "evict=" + std::string(policy) + ",ratio=8,sink=20,recent=37,trigger=64,every=8",
        work);
    const SequenceId id = *run.cache->CreateSequence();
    run.after_step = [&] {
      for (int layer = 0; layer < 2; ++layer) {
        const SequenceInfo info = *run.cache->Describe(id, layer);
        std::set<int64_t> rows;
        for (const PageSpan& page : info.pages) {
          for (int64_t p = 0; p < page.num_positions; ++p) rows.insert(page.first_position + p);
        }
        for (int64_t p = 0; p < info.next_position; ++p) {
          const bool floor = p < 20 || p >= info.next_position - 37;
          ASSERT_TRUE(!floor || rows.contains(p)) << p;
        }
      }
    };
    run.Feed(id, 200);
    ASSERT_OK(run.cache->EndPrompt(id));
    run.Feed(id, 400);
    EXPECT_GT(run.cache->Report().retention.pages_evicted, 0u);
    EXPECT_GT(run.cache->Report().retention.plans_bound, 0u);  // 1/8 of 64 tokens is less
  }
}

TEST(CacheRetention, NothingHappensWhileSinkAndRecentCoverTheSequence) {
  const RetentionWork work(Shape(), 300);
  RetentionRun run(Shape(), "evict=h2o,ratio=4,sink=100,recent=200,trigger=16,every=16", work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 300);
  EXPECT_EQ(run.cache->Report().retention.pages_evicted, 0u);
  EXPECT_GT(run.cache->Report().retention.plans_bound, 0u);
  EXPECT_EQ(run.PagesOf(id, 0), AllPages(300));
  // One page, exactly the trigger.
  RetentionRun one(Shape(), "evict=h2o,ratio=4,sink=4,recent=4,trigger=16,every=16", work);
  const SequenceId single = *one.cache->CreateSequence();
  one.Feed(single, 17);
  EXPECT_EQ(one.log.events.size(), 1u);
  EXPECT_EQ(one.PagesOf(single, 0), (std::vector<int64_t>{0, 16}));
}

TEST(CacheRetention, AStalePlanIsCountedAndNeverCarriedOut) {
  const CacheShape shape = Shape(3);
  const RetentionWork work(shape, 300);
  using Edit = std::function<Status(Cache&, SequenceId)>;
  const std::pair<const char*, Edit> edits[] = {
      {"truncate", [](Cache& c, SequenceId id) { return c.Truncate(id, 127); }},
      {"truncate far", [](Cache& c, SequenceId id) { return c.Truncate(id, 70); }},
      {"remove", [](Cache& c, SequenceId id) { return c.RemoveRange(id, 40, 41); }},
      {"remove a page", [](Cache& c, SequenceId id) { return c.RemoveRange(id, 32, 48); }},
      {"keep", [](Cache& c, SequenceId id) { return c.KeepOnly(id, 1, 128); }},
      {"slide", [](Cache& c, SequenceId id) { return c.SlideWindow(id, 100, 0); }},
  };
  for (const auto& [name, edit] : edits) {
    SCOPED_TRACE(name);
    RetentionRun run(shape, "1-: " + PlanOf("h2o"), work);
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 128);
    ASSERT_OK(edit(*run.cache, id));
    std::vector<int64_t> before = run.PagesOf(id, 1);
    const int64_t position = *run.cache->NextPosition(id);
    run.Feed(id, position + 1, 1);
    std::vector<int64_t> after = run.PagesOf(id, 1);
    after.resize(std::min(before.size(), after.size()));
    EXPECT_EQ(before, after);
    EXPECT_TRUE(run.log.events.empty());
    EXPECT_EQ(run.cache->Report().retention.plans, 0u);
    EXPECT_EQ(run.cache->Report().retention.plans_stale, 2u);  // of two layers
    // The next one is carried out as usual.
    run.Feed(id, 161);
    EXPECT_FALSE(run.log.events.empty());
    EXPECT_EQ(run.cache->Report().retention.plans_stale, 2u);
    EXPECT_GT(run.cache->Report().retention.pages_evicted, 0u);
  }
}

TEST(CacheRetention, SnapKvWaitsForTheEndOfThePrompt) {
  const RetentionWork work(Shape(), 300);
  RetentionRun run(Shape(), PlanOf("snapkv"), work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 205);
  EXPECT_TRUE(run.log.events.empty());
  EXPECT_EQ(run.PagesOf(id, 0), AllPages(205));
  ASSERT_OK(run.cache->EndPrompt(id));
  EXPECT_EQ(run.PagesOf(id, 0), AllPages(205));
  run.Feed(id, 206);
  ASSERT_EQ(run.log.events.size(), 1u);
  EXPECT_EQ(run.log.events[0].next_position, 205);
  EXPECT_LT(run.PagesOf(id, 0).size(), 8u);

  // A prompt below the trigger is left alone until the trigger.
  RetentionRun brief(Shape(), PlanOf("snapkv"), work);
  const SequenceId other = *brief.cache->CreateSequence();
  brief.Feed(other, 50);
  ASSERT_OK(brief.cache->EndPrompt(other));
  brief.Feed(other, 128);
  EXPECT_TRUE(brief.log.events.empty());
  brief.Feed(other, 129);
  EXPECT_EQ(brief.log.events.size(), 1u);
}

TEST(CacheRetention, SnapKvKeepsAPromptsScoresUntilTheNextPromptEnds) {
  const RetentionWork work(Shape(), 420);
  RetentionRun run(Shape(), PlanOf("snapkv"), work);
  const SequenceId id = *run.cache->CreateSequence();
  const auto scores = [](const RetentionEvent& event) {
    std::map<int64_t, double> result;
    for (const PageDecision& page : event.pages) {
      if (page.page.first_position + 16 <= 192) result[page.page.first_position] = page.score;
    }
    return result;
  };
  run.Feed(id, 200);
  ASSERT_OK(run.cache->EndPrompt(id));
  run.Feed(id, 201);
  const std::map<int64_t, double> first = scores(run.log.events.at(0));
  EXPECT_EQ(first.size(), 12u);
  run.Feed(id, 300);  // an answer and the next question
  EXPECT_GT(run.log.events.size(), 3u);
  for (const RetentionEvent& event : run.log.events) {
    for (const auto& [page, score] : scores(event)) EXPECT_EQ(score, first.at(page)) << page;
  }
  run.log.events.clear();
  ASSERT_OK(run.cache->EndPrompt(id));
  run.Feed(id, 301);
  ASSERT_EQ(run.log.events.size(), 1u);
  const std::map<int64_t, double> second = scores(run.log.events.at(0));
  EXPECT_FALSE(second.empty());
  for (const auto& [page, score] : second) EXPECT_NE(score, first.at(page)) << page;
  run.Feed(id, 420);
}

TEST(CacheRetention, GoesTogetherWithAWindow) {
  const RetentionWork work(Shape(), 500);
  RetentionRun run(Shape(), PlanOf("h2o", ",window=128"), work);
  const SequenceId id = *run.cache->CreateSequence();
  run.after_step = [&] {
    const SequenceInfo info = *run.cache->Describe(id, 0);
    for (const PageSpan& page : info.pages) {
      if (page.first_position < 16) continue;
      EXPECT_LT(info.next_position - page.first_position - page.num_positions, 128);
    }
  };
  run.Feed(id, 500);
  const CacheReport stats = run.cache->Report();
  EXPECT_GT(stats.retention.pages_evicted, 0u);
  EXPECT_GT(stats.pages_dropped, stats.retention.pages_evicted);  // some fell out of the window
  EXPECT_EQ(stats.retention.plans_stale, 0u);
}

TEST(CacheRetention, StatisticsAddUp) {
  const CacheShape shape = Shape(2);
  const RetentionWork work(shape, 400);
  RetentionRun run(shape, PlanOf("h2o"), work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 385);
  const CacheReport stats = run.cache->Report();
  uint64_t pages = 0, last = 0;
  for (const RetentionEvent& event : run.log.events) {
    for (const PageDecision& page : event.pages) {
      if (page.fate != PageFate::kDropped) continue;
      ++pages;
      last += event.next_position == 384 ? 16 : 0;
    }
  }
  EXPECT_EQ(stats.retention.plans, run.log.events.size());
  EXPECT_EQ(stats.retention.pages_evicted, pages);
  EXPECT_EQ(stats.retention.tokens_evicted, 16 * pages);
  EXPECT_EQ(stats.retention.tokens_evicted_last, last);
  EXPECT_EQ(stats.pages_dropped, pages);
  EXPECT_EQ(stats.bytes_f16_seen, 2u * 385 * 2 * 64 * 2);
  EXPECT_EQ(stats.bytes_f16, stats.bytes_f16_seen - 16 * pages * 2 * 64 * 2);
  EXPECT_DOUBLE_EQ(stats.retention.keep_ratio, 1.0 - 16.0 * static_cast<double>(pages) / 2 / 385);
  EXPECT_GT(stats.retention.plan_bytes, 0u);
  EXPECT_DOUBLE_EQ(stats.retention.lossy_ratio, static_cast<double>(stats.bytes_f16_seen) /
                                                    static_cast<double>(HeldBytes(*run.cache)));
  EXPECT_GE(stats.retention.effective_keep, stats.retention.target_keep);
  EXPECT_NEAR(stats.retention.target_keep, 1 / 2.5, 1e-3);
}

TEST(CacheRetention, NaNsInTheInputHurtNothingElse) {
  const RetentionWork clean(Shape(2), 400);
  for (const char* policy : {"h2o", "tova", "demote"}) {
    RetentionWork work = clean;
    for (size_t i = 977; i < work.keys[0].size(); i += 3571)
      work.keys[0][i] = std::numeric_limits<float>::quiet_NaN();
    RetentionRun run(Shape(2), PlanOf(policy), work);
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 400);
    for (const RetentionEvent& event : run.log.events) {
      for (const PageDecision& page : event.pages)
        EXPECT_TRUE(std::isfinite(page.score)) << policy << " " << page.page.first_position;
    }
  }
}

}  // namespace cache_retention_test
}  // namespace varve
