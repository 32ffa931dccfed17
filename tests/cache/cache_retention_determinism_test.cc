// What a policy decides depends on the tokens alone: not on how they were cut into steps, not on
// threads, not on the order of layers or on other sequences. Results are compared bit for bit.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_retention_determinism_test {

constexpr int64_t kPrompt = 205;
constexpr int64_t kTokens = 330;

CacheShape Shape(int page = 16) {
  return ShapeOf(
      {.layers = 3, .kv_heads = 2, .group = 3, .key_dim = 64, .value_dim = 32, .page = page});
}

struct Outcome {
  std::vector<std::string> events;
  std::map<std::pair<uint64_t, int>, std::vector<float>> outputs;
  std::vector<float> rows;
  std::string stats;
};

struct How {
  int step_tokens = 1 << 20;
  int threads = 1;
  bool backwards = false;
  int page = 16;
};

Outcome Decide(const std::string& plan, const RetentionWork& work, const How& how) {
  CacheOptions options;
  options.num_threads = how.threads;
  RetentionRun run(Shape(how.page), plan, work, options);
  run.backwards = how.backwards;
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, kPrompt, how.step_tokens);
  EXPECT_OK(run.cache->EndPrompt(id));
  run.Feed(id, kTokens, how.step_tokens);
  EXPECT_GT(
      run.cache->Report().retention.pages_evicted + run.cache->Report().retention.pages_demoted,
      0u);
  return {EventTexts(run.log), run.outputs, ReadAll(*run.cache, id),
          StatsText(run.cache->Report())};
}

void ExpectSame(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.events, b.events);
  EXPECT_TRUE(a.outputs == b.outputs);
  EXPECT_TRUE(a.rows == b.rows);
  EXPECT_EQ(a.stats, b.stats);
}

class CacheRetentionDeterminism : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Plans, CacheRetentionDeterminism,
    testing::Values("evict=h2o,ratio=2.5,sink=16,recent=32,trigger=96,every=16",
                    "q8_0,evict=h2o,ratio=4,sink=5,recent=20,trigger=100,every=24,ema=0.5",
                    "1-: evict=h2o,ratio=2.5,sink=16,recent=32,trigger=96,every=10",
                    "evict=tova,ratio=2.5,sink=16,recent=32,trigger=96",
                    "evict=snapkv,ratio=2.5,sink=16,recent=32,trigger=96",
                    "evict=random,ratio=2.5,sink=16,recent=32,trigger=96",
                    "evict=window,ratio=2.5,sink=16,recent=32,trigger=96",
                    "0: q8_0; 1-: evict=demote,ratio=2.5,sink=16,recent=32,trigger=96,every=24",
                    "q8_0,open=40,evict=demote,budget=200KiB,sink=16,recent=16,trigger=96"),
    [](const auto& param) { return "Plan" + std::to_string(param.index); });

TEST_P(CacheRetentionDeterminism, StepsThreadsAndTheOrderOfLayersDoNotShow) {
  for (int page : {16, 32}) {
    SCOPED_TRACE(std::string(GetParam()) + " page " + std::to_string(page));
    const RetentionWork work(Shape(page), kTokens);
    const Outcome single = Decide(GetParam(), work, {.step_tokens = 1, .page = page});
    EXPECT_FALSE(single.events.empty());
    ExpectSame(Decide(GetParam(), work, {.page = page}), single);
    ExpectSame(Decide(GetParam(), work, {.step_tokens = 7, .threads = 2, .page = page}), single);
    ExpectSame(Decide(GetParam(), work, {.threads = 5, .page = page}), single);
  }
}

TEST(CacheRetentionOrder, OfLayersDoesNotShow) {
  const RetentionWork work(Shape(), kTokens);
  const std::string plan = "evict=demote,ratio=2.5,sink=16,recent=32,trigger=96";
  ExpectSame(Decide(plan, work, {.backwards = true}), Decide(plan, work, {}));
}

TEST(CacheRetentionOrder, SequencesInOneStepDecideAsIfAlone) {
  const RetentionWork work_a(Shape(), 260), work_b(Shape(), 260, 21);
  const std::string plan = "evict=h2o,ratio=2.5,sink=16,recent=32,trigger=96";
  RetentionRun a(Shape(), plan, work_a), b(Shape(), plan, work_b), both(Shape(), plan, work_a);
  a.Feed(*a.cache->CreateSequence(), 220);
  b.Feed(*b.cache->CreateSequence(), 200);
  const SequenceId first = *both.cache->CreateSequence(), second = *both.cache->CreateSequence();
  both.Feed(first, 20);
  for (int64_t position = 0; position < 200; ++position) {
    const StepEntry entries[] = {{first, 1}, {second, 1}};
    ASSERT_OK(both.cache->BeginStep(entries));
    for (int layer = 0; layer < 3; ++layer) {
      both.work = &work_b;
      both.Layer(layer, second, position, 1);
      both.work = &work_a;
      both.Layer(layer, first, position + 20, 1);
    }
    ASSERT_OK(both.cache->EndStep());
  }
  const auto texts = [&](SequenceId id) {
    std::vector<std::string> result;
    for (const RetentionEvent& event : both.log.events) {
      if (event.sequence == id) result.push_back(EventText(event));
    }
    return result;
  };
  EXPECT_EQ(texts(first), EventTexts(a.log));
  EXPECT_EQ(texts(second), EventTexts(b.log));
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE((both.outputs[{first.value, layer}] == a.outputs[{1, layer}]));
    EXPECT_TRUE((both.outputs[{second.value, layer}] == b.outputs[{1, layer}]));
  }
}

}  // namespace cache_retention_determinism_test
}  // namespace varve
