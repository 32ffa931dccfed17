// A query sees each page in the state it would have if tokens had come one at a time, and threads
// never show: results are compared bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_determinism_test {

// All rows and queries of one run, so that several caches can be fed the same.
struct Workload {
  Workload(const CacheShape& shape, int num_tokens) : tokens(num_tokens) {
    RowRandom random(11);
    const size_t heads = shape.num_kv_heads;
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      keys.push_back(random.Gaussians(tokens * heads * shape.key_dim));
      values.push_back(random.Gaussians(tokens * heads * shape.value_dim));
      queries.push_back(random.Gaussians(tokens * heads * shape.group_size * shape.key_dim));
    }
  }

  int tokens;
  std::vector<std::vector<float>> keys;     // per layer [tokens, kv_heads, key_dim]
  std::vector<std::vector<float>> values;   // per layer [tokens, kv_heads, value_dim]
  std::vector<std::vector<float>> queries;  // per layer [tokens, query heads, key_dim]
};

struct Outcome {
  std::vector<float> output;  // [layers, tokens, query heads, value_dim]
  std::vector<float> log_sum_exp;
  std::vector<float> rows;
  std::string stats;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSame(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(SameBits(a.output, b.output));
  EXPECT_TRUE(SameBits(a.log_sum_exp, b.log_sum_exp));
  EXPECT_TRUE(SameBits(a.rows, b.rows));
  EXPECT_EQ(a.stats, b.stats);
}

// Feeds the workload in steps of at most `step_tokens`, every token attending in every layer.
Outcome Feed(Cache& cache, const Workload& work, int step_tokens) {
  const CacheShape& shape = cache.shape();
  const size_t heads = static_cast<size_t>(shape.num_kv_heads) * shape.group_size;
  const size_t key_floats = static_cast<size_t>(shape.num_kv_heads) * shape.key_dim;
  const size_t value_floats = static_cast<size_t>(shape.num_kv_heads) * shape.value_dim;
  Outcome outcome;
  outcome.output.resize(shape.num_layers * work.tokens * heads * shape.value_dim);
  outcome.log_sum_exp.resize(shape.num_layers * work.tokens * heads);
  const SequenceId id = *cache.CreateSequence();
  for (int first = 0; first < work.tokens;) {
    const int count = std::min({step_tokens, *cache.MaxStepTokens(id), work.tokens - first});
    const StepEntry entry = {id, count};
    EXPECT_OK(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      EXPECT_OK(cache.Append(layer, id, {&work.keys[layer][first * key_floats], count, 0, 0},
                             {&work.values[layer][first * value_floats], count, 0, 0}));
      const size_t row = (static_cast<size_t>(layer) * work.tokens + first) * heads;
      const AttendRequest request = {id, count, &work.queries[layer][first * heads * shape.key_dim],
                                     0,  0,     &outcome.output[row * shape.value_dim],
                                     0,  0,     &outcome.log_sum_exp[row]};
      EXPECT_OK(cache.Attend(layer, {&request, 1}, {}));
    }
    EXPECT_OK(cache.EndStep());
    first += count;
  }
  outcome.rows = ReadAll(cache, id);
  outcome.stats = StatsText(cache.Report());
  return outcome;
}

constexpr const char* kPlans[] = {
    "f16",
    "f32,open_rung=f32",
    "bf16",
    "q8_0",
    "q4_0",
    "q4_0r,exact=0",
    "k=q8_0r,v=q4_0,open=100,exact=0",
    "age=f16:37/q8_0:101/q4_0,exact=0",
    "age=f16:20/q8_0r:45/q4_0r,open=10,exact=0",
    "t4,exact=0",
    "k=t3,v=t2,open=100,exact=0",
    "age=f16:20/t4:45/t2,open=10,exact=0",
    "q8_0,window=75,sink=3",
    "0: f16; 1: q4_0,open=30,exact=0; 2: age=q8_0:50/q4_0,window=90,exact=0",
};

class CacheDeterminism : public testing::TestWithParam<const char*> {
 protected:
  CacheShape Shape(int page) const {
    return ShapeOf(
        {.layers = 3, .kv_heads = 2, .group = 3, .key_dim = 96, .value_dim = 64, .page = page});
  }
  Outcome Run(int page, const Workload& work, int step_tokens, int threads) const {
    CacheOptions options;
    options.num_threads = threads;
    return Feed(*MakeCache(Shape(page), GetParam(), options), work, step_tokens);
  }
};

INSTANTIATE_TEST_SUITE_P(Plans, CacheDeterminism, testing::ValuesIn(kPlans));

TEST_P(CacheDeterminism, PrefillEqualsTokenByTokenBitForBit) {
  for (int page : {16, 64}) {
    const Workload work(Shape(page), 240);
    const Outcome single = Run(page, work, 1, 1);
    ExpectSame(Run(page, work, page, 1), single);
    ExpectSame(Run(page, work, 7, 2), single);
  }
}

TEST_P(CacheDeterminism, AnyNumberOfThreadsGivesTheSameBits) {
  const Workload work(Shape(32), 600);  // 19 pages: two splits
  const Outcome alone = Run(32, work, 32, 1);
  for (int threads : {2, 3, 5}) ExpectSame(Run(32, work, 32, threads), alone);
  // Few rows: the splits of a step are tasks of their own.
  for (int threads : {1, 2, 5}) ExpectSame(Run(32, work, 5, threads), alone);
}

// The compression is really there: a plan that stores less precisely computes something else.
TEST(CachePrecision, CoarserRungsGiveOtherButSimilarOutputs) {
  const CacheShape shape = ShapeOf({.layers = 1, .key_dim = 64, .value_dim = 64, .page = 16});
  const Workload work(shape, 200);
  const std::vector<float> exact = Feed(*MakeCache(shape, "f16"), work, 16).output;
  double last = 0.0;
  for (const char* rung : {"q8_0", "q4_0,exact=0"}) {
    const std::vector<float> coarse = Feed(*MakeCache(shape, rung), work, 16).output;
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += (coarse[i] - exact[i]) * (coarse[i] - exact[i]);
      norm += exact[i] * exact[i];
    }
    EXPECT_GT(error, 16 * last) << rung;
    EXPECT_GT(error, 1e-7 * norm) << rung;
    EXPECT_LT(error, 0.1 * norm) << rung;
    last = error;
  }
}

}  // namespace cache_determinism_test
}  // namespace varve
