#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/llama/llama_testing.h"
#include "runtime/model_cache.h"

namespace varve {
namespace llama_runner_test {

class LlamaRunnerTest : public testing::Test {
 protected:
  std::vector<float> LastLogits(std::string_view plan, int threads) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    const std::unique_ptr<Cache> cache = golden_.NewCache(plan, executor.get());
    LlamaRunner runner(golden_.model, *executor);
    const SequenceId sequence = *cache->CreateSequence();
    std::vector<float> logits(vocab_size());
    const std::span tokens(golden_.tokens);
    EXPECT_OK(runner.Forward(*cache, sequence, tokens.first(140), Logits::kNone, nullptr));
    for (size_t t = 140; t < tokens.size(); ++t)
      EXPECT_OK(
          runner.Forward(*cache, sequence, tokens.subspan(t, 1), Logits::kLast, logits.data()));
    return logits;
  }

  size_t vocab_size() const { return golden_.model->config().vocab_size; }

  GoldenModel golden_{"llama"};
};

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  return worst;
}

TEST_F(LlamaRunnerTest, AttentionReadsTheCache) {
  const std::vector<float> exact = LastLogits(kExactPlan, 2);
  const double f16 = MaxDifference(exact, LastLogits("f16", 2));
  const double q8 = MaxDifference(exact, LastLogits("q8_0", 2));
  const double q4 = MaxDifference(exact, LastLogits("q4_0,exact=0", 2));
  EXPECT_GT(f16, 0.0);
  EXPECT_GT(q8, f16);
  EXPECT_GT(q4, 2 * q8);
  EXPECT_LT(f16, 0.1);
}

TEST_F(LlamaRunnerTest, ThreadsDoNotChangeABit) {
  for (std::string_view plan : {"f16", "q4_0,exact=0"}) {
    const std::vector<float> one = LastLogits(plan, 1);
    for (int threads : {2, 3}) {
      const std::vector<float> many = LastLogits(plan, threads);
      EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
    }
  }
}

TEST_F(LlamaRunnerTest, BadCallsChangeNothing) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const std::unique_ptr<Cache> cache = golden_.NewCache("f16", executor.get());
  LlamaRunner runner(golden_.model, *executor);
  const SequenceId sequence = *cache->CreateSequence();
  std::vector<float> logits(2 * vocab_size());

  ExpectRefusal(runner.Forward(*cache, sequence, {}, Logits::kNone, nullptr), {"tokens"});
  std::vector<int32_t> tokens = {1, 2, 96};
  ExpectRefusal(runner.Forward(*cache, sequence, tokens, Logits::kLast, logits.data()),
                {"token 2", "id 96", "[0, 96)"});
  tokens[2] = -1;
  ExpectRefusal(runner.Forward(*cache, sequence, tokens, Logits::kLast, logits.data()),
                {"token 2", "id -1"});
  tokens[2] = 3;
  ExpectRefusal(runner.Forward(*cache, sequence, tokens, Logits::kAll, nullptr), {"logits"});
  ExpectRefusal(runner.Forward(*cache, {999}, tokens, Logits::kNone, nullptr),
                {"after 0 of 3 tokens"});
  ExpectRefusal(runner.Decode(*cache, {}, logits.data()), {"tokens"});
  const std::vector<DecodeEntry> twice = {{sequence, 1}, {sequence, 2}};
  EXPECT_FALSE(runner.Decode(*cache, twice, logits.data()).ok());
  EXPECT_EQ(*cache->NextPosition(sequence), 0);

  // And none of them left a step open.
  EXPECT_OK(runner.Forward(*cache, sequence, tokens, Logits::kLast, logits.data()));
  EXPECT_EQ(*cache->NextPosition(sequence), 3);
}

TEST_F(LlamaRunnerTest, RefusesACacheOfAnotherModel) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  CacheShape shape = golden_.model->cache_shape();
  shape.num_layers = 3;
  const std::unique_ptr<Cache> cache = MakeCache(shape, "f16");
  LlamaRunner runner(golden_.model, *executor);
  const std::vector<int32_t> tokens = {1};
  ExpectRefusal(runner.Forward(*cache, *cache->CreateSequence(), tokens, Logits::kNone, nullptr),
                {"num_layers 3", "2"});
}

TEST_F(LlamaRunnerTest, AStepOfSomebodyElseStaysOpen) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const std::unique_ptr<Cache> cache = golden_.NewCache("f16", executor.get());
  LlamaRunner runner(golden_.model, *executor);
  const StepEntry entry{*cache->CreateSequence(), 1};
  ASSERT_OK(cache->BeginStep({&entry, 1}));
  const std::vector<int32_t> tokens = {1};
  EXPECT_FALSE(runner.Forward(*cache, *&entry.sequence, tokens, Logits::kNone, nullptr).ok());
  EXPECT_FALSE(cache->BeginStep({&entry, 1}).ok());  // still open
  cache->AbortStep();
  EXPECT_OK(runner.Forward(*cache, entry.sequence, tokens, Logits::kNone, nullptr));
}

TEST_F(LlamaRunnerTest, ProgressCountsTokensAndCanStop) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const std::unique_ptr<Cache> cache = golden_.NewCache("f16", executor.get());
  LlamaRunner runner(golden_.model, *executor);
  const SequenceId sequence = *cache->CreateSequence();
  std::vector<int64_t> seen;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 8; ++i)
    tokens.insert(tokens.end(), golden_.tokens.begin(), golden_.tokens.end());
  const Status status =
      runner.Forward(*cache, sequence, tokens, Logits::kNone, nullptr, [&](int64_t done) {
        seen.push_back(done);
        return seen.size() < 2;
      });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectRefusal(status, {"after 1024 of 1200 tokens", "stopped"});
  EXPECT_EQ(seen, (std::vector<int64_t>{512, 1024}));
  EXPECT_EQ(*cache->NextPosition(sequence), 1024);
}

TEST_F(LlamaRunnerTest, CapOfTheCacheEndsAForwardCleanly) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  CacheOptions options;
  options.executor = executor.get();
  CountingMemory memory;
  memory.maps_left = 1;  // the second slab is refused
  options.memory = &memory;
  const std::unique_ptr<Cache> cache =
      MakeCache(golden_.model->cache_shape(), "f16", std::move(options));
  LlamaRunner runner(golden_.model, *executor);
  const SequenceId sequence = *cache->CreateSequence();
  Status status;
  int64_t fed = 0;
  for (; status.ok() && fed < 40000; fed += 150)
    status = runner.Forward(*cache, sequence, golden_.tokens, Logits::kNone, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  memory.maps_left = -1;
  std::vector<float> logits(vocab_size());
  EXPECT_OK(runner.Forward(*cache, sequence, std::span(golden_.tokens).first(1), Logits::kLast,
                           logits.data()));
}

TEST_F(LlamaRunnerTest, TimesAreCounted) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const std::unique_ptr<Cache> cache = golden_.NewCache("f16", executor.get());
  LlamaRunner runner(golden_.model, *executor);
  ASSERT_OK(
      runner.Forward(*cache, *cache->CreateSequence(), golden_.tokens, Logits::kNone, nullptr));
  const ForwardTimes times = runner.times();
  EXPECT_GT(times.linear_us, 0.0);
  EXPECT_GT(times.attention_us, 0.0);
  EXPECT_GT(times.cache_us, 0.0);
  EXPECT_GT(times.other_us, 0.0);
  runner.ResetTimes();
  EXPECT_EQ(runner.times().linear_us, 0.0);
  EXPECT_GT(runner.scratch_bytes(), 0u);
}

// Activations of a random model stay of order one through all layers.
TEST(RandomModel, GivesFiniteLogits) {
  LlamaConfig config = *PresetConfig("qwen3-0.6b");
  config.num_layers = 3;
  config.vocab_size = 512;
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  for (WeightType type : {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kF16}) {
    const Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::Random(config, type, 7);
    ASSERT_OK(model.status());
    CacheOptions options = CacheOptionsFor(**model);
    EXPECT_EQ(options.model_fingerprint, 0u);  // nobody's codebook fits
    options.executor = executor.get();
    const std::unique_ptr<Cache> cache =
        MakeCache((*model)->cache_shape(), "f16", std::move(options));
    LlamaRunner runner(*model, *executor);
    std::vector<float> logits(config.vocab_size);
    const std::vector<int32_t> tokens = {1, 5, 9, 200};
    ASSERT_OK(
        runner.Forward(*cache, *cache->CreateSequence(), tokens, Logits::kLast, logits.data()));
    double squares = 0;
    for (float value : logits) squares += double{value} * value;
    EXPECT_GT(squares / config.vocab_size, 0.1);
    EXPECT_LT(squares / config.vocab_size, 10.0);
  }
}

}  // namespace llama_runner_test
}  // namespace varve
