// Timing by stage changes nothing but the times, and costs nothing that is not asked for.

#include <gtest/gtest.h>

#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_stages_test {

constexpr int kPromptTokens = 192;  // in steps of 64: more query rows than one chunk
constexpr int kDecodeTokens = 70;   // one at a time: splits are tasks of their own

CacheShape Shape() {
  return ShapeOf({.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 64, .page = 64});
}

// Feeds a prompt and some tokens; returns every output. [tokens, layers, heads, value_dim]
std::vector<float> Feed(Cache& cache) {
  const CacheShape& shape = cache.shape();
  const size_t heads = static_cast<size_t>(shape.num_kv_heads) * shape.group_size;
  RowRandom random(5);
  std::vector<float> all;
  const SequenceId id = *cache.CreateSequence();
  for (int done = 0; done < kPromptTokens + kDecodeTokens;) {
    const int count = done < kPromptTokens ? 64 : 1;
    const StepEntry entry = {id, count};
    EXPECT_OK(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const auto rows = static_cast<size_t>(count);
      const auto keys = random.Gaussians(rows * shape.num_kv_heads * shape.key_dim);
      const auto values = random.Gaussians(rows * shape.num_kv_heads * shape.value_dim);
      const auto queries = random.Gaussians(rows * heads * shape.key_dim);
      std::vector<float> output(rows * heads * shape.value_dim);
      EXPECT_OK(cache.Append(layer, id, {keys.data(), count, 0, 0}, {values.data(), count, 0, 0}));
      AttendRequest request;
      request.sequence = id;
      request.num_queries = count;
      request.queries = queries.data();
      request.output = output.data();
      EXPECT_OK(cache.Attend(layer, {&request, 1}, {}));
      all.insert(all.end(), output.begin(), output.end());
    }
    EXPECT_OK(cache.EndStep());
    done += count;
  }
  return all;
}

CacheOptions Timed(int threads) {
  CacheOptions options;
  options.time_stages = true;
  options.num_threads = threads;
  return options;
}

TEST(CacheStages, EveryStageThatRanHasATime) {
  for (const int threads : {1, 2}) {
    const auto cache = MakeCache(Shape(), "q4_0r,exact=0", Timed(threads));
    Feed(*cache);
    const StageTimes stages = cache->Report().stages;
    for (const double us : {stages.prepare_us, stages.scores_us, stages.softmax_us,
                            stages.values_us, stages.merge_us, stages.encode_us, stages.append_us})
      EXPECT_GT(us, 0) << threads;
    EXPECT_EQ(stages.attend_passes, 2u * (3 + kDecodeTokens));
    // K and V of two heads in two layers: four whole pages, and every token.
    EXPECT_EQ(stages.rows_encoded, 8u * 4 * 64);
    EXPECT_EQ(stages.rows_appended, 8u * (kPromptTokens + kDecodeTokens));
  }
}

TEST(CacheStages, APlanThatEncodesNothingHasNoEncodingTime) {
  const auto cache = MakeCache(Shape(), "f16", Timed(1));
  Feed(*cache);
  const StageTimes stages = cache->Report().stages;
  EXPECT_EQ(stages.encode_us, 0);
  EXPECT_EQ(stages.rows_encoded, 0u);
  EXPECT_GT(stages.scores_us, 0);
}

TEST(CacheStages, WithoutTheOptionEverythingIsZeroAndResultsAreTheSame) {
  for (const char* plan : {"f16", "q8_0", "age=q8_0r:64/q4_0r,exact=0"}) {
    const auto timed = MakeCache(Shape(), plan, Timed(2));
    const auto plain = MakeCache(Shape(), plan);
    EXPECT_EQ(Feed(*timed), Feed(*plain)) << plan;
    EXPECT_EQ(StatsText(timed->Report()), StatsText(plain->Report())) << plan;
    const StageTimes stages = plain->Report().stages;
    for (const double us : {stages.prepare_us, stages.scores_us, stages.softmax_us,
                            stages.values_us, stages.merge_us, stages.encode_us, stages.append_us})
      EXPECT_EQ(us, 0) << plan;
    EXPECT_EQ(stages.attend_passes + stages.rows_encoded + stages.rows_appended, 0u) << plan;
  }
}

}  // namespace cache_stages_test
}  // namespace varve
