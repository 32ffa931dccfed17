#include "runtime/generate_batch.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/model/open_model.h"
#include "tests/tiny_model.h"

namespace varve {
namespace generate_batch_test {

class GenerateBatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = *LoadDecoderModel(*GgufFile::FromMemory(bytes_, "tiny"));
    runner_ = model_->MakeRunner(*executor_);
    options_.max_tokens = 20;
    options_.sampler.temperature = 0.9f;
    options_.sampler.seed = 3;
    callbacks_.on_done = [this](size_t index, const Generation& generation) {
      order_.push_back(index);
      results_[index] = generation;
    };
    callbacks_.on_step = [this](const BatchMoment& moment) {
      most_ = std::max(most_, moment.sequences);
      most_tokens_ = std::max(most_tokens_, moment.tokens);
      return true;
    };
  }
  std::unique_ptr<Cache> MakeCache(uint64_t max_bytes = 0) const {
    CacheOptions options;
    options.plan = *ParsePlan("q8_0,page=16");
    options.executor = executor_.get();
    options.max_bytes = max_bytes;
    return Cache::Create(model_->cache_shape(), std::move(options)).value();
  }
  // All prompts in a cache, which is empty again afterwards.
  Status Run(int together, uint64_t max_bytes = 0) {
    order_.clear();
    results_.clear();
    most_ = 0;
    const std::unique_ptr<Cache> cache = MakeCache(max_bytes);
    Status status = GenerateBatch(*runner_, *cache, prompts_, options_, together, callbacks_);
    EXPECT_EQ(cache->Stats().bytes_used, 0u);
    return status;
  }

  std::vector<std::byte> bytes_ = TinyModel().Build();
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<DecoderRunner> runner_;
  std::vector<std::vector<int32_t>> prompts_ = {
      {1, 17, 5, 80, 33}, {7}, std::vector<int32_t>(70, 42), {9, 10, 11}, {200, 3}};
  GenerateOptions options_;
  BatchCallbacks callbacks_;
  std::vector<size_t> order_;
  std::map<size_t, Generation> results_;
  int most_ = 0;
  int64_t most_tokens_ = 0;
};

TEST_F(GenerateBatchTest, EachPromptGetsWhatItGetsAlone) {
  std::vector<std::vector<int32_t>> alone;
  for (const std::vector<int32_t>& prompt : prompts_) {
    const std::unique_ptr<Cache> cache = MakeCache();
    const SequenceId sequence = *cache->CreateSequence();
    alone.push_back(Generate(*runner_, *cache, sequence, prompt, options_, {})->tokens);
  }
  for (const int together : {1, 2, 3, 8}) {
    ASSERT_TRUE(Run(together).ok());
    ASSERT_EQ(results_.size(), prompts_.size());
    for (size_t i = 0; i < prompts_.size(); ++i) {
      EXPECT_EQ(results_[i].tokens, alone[i]) << "prompt " << i << " of " << together;
      EXPECT_EQ(results_[i].prompt_tokens, static_cast<int64_t>(prompts_[i].size()));
      EXPECT_EQ(results_[i].stop, StopReason::kMaxTokens);
    }
    EXPECT_EQ(most_, std::min<int>(together, 5));
  }
  EXPECT_GT(most_tokens_, 80);  // all five prompts, and what they have written
}

TEST_F(GenerateBatchTest, APlaceThatIsFreeIsTakenByTheNext) {
  // The second prompt ends at once.
  const int32_t end = [&] {
    EXPECT_TRUE(Run(1).ok());
    return results_[1].tokens[0];
  }();
  options_.is_end = [end](int32_t token) { return token == end; };
  ASSERT_TRUE(Run(2).ok());
  EXPECT_EQ(results_.size(), 5u);
  EXPECT_EQ(order_.front(), 1u);
  EXPECT_TRUE(results_[1].tokens.empty());
  EXPECT_EQ(results_[1].stop, StopReason::kEndToken);
  EXPECT_EQ(most_, 2);
}

TEST_F(GenerateBatchTest, APromptWaitsUntilTheCacheHasRoomForIt) {
  prompts_.assign(4, std::vector<int32_t>(200, 42));
  ASSERT_TRUE(Run(4).ok());
  EXPECT_EQ(most_, 4);
  const std::unique_ptr<Cache> cache = MakeCache();
  const SequenceId sequence = *cache->CreateSequence();
  ASSERT_TRUE(Generate(*runner_, *cache, sequence, prompts_[0], options_, {}).ok());
  const CacheStats stats = cache->Stats();
  // Room for one and a half.
  const Status status = Run(4, (stats.bytes_held + stats.bytes_tables) * 3 / 2);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(results_.size(), 4u);
  EXPECT_LT(most_, 4);
  // One that has the cache to itself and still no room is an error.
  EXPECT_EQ(Run(4, 4096).code(), StatusCode::kOutOfMemory);
}

TEST_F(GenerateBatchTest, StoppingKeepsWhatIsThere) {
  int steps = 0;
  callbacks_.on_step = [&](const BatchMoment&) { return ++steps < 8; };
  ASSERT_TRUE(Run(2).ok());
  ASSERT_EQ(results_.size(), 2u);  // the rest never began
  EXPECT_EQ(results_[0].stop, StopReason::kStopped);
  EXPECT_FALSE(results_[0].tokens.empty());
}

TEST_F(GenerateBatchTest, RefusesWhatCannotWorkBeforeItBegins) {
  options_.max_context = 60;
  const Status status = Run(2);
  EXPECT_EQ(status.message(), "prompt 2: prompt: 70 tokens at position 0 > context 60");
  EXPECT_TRUE(results_.empty());
  options_.max_context = 0;
  EXPECT_EQ(Run(0).code(), StatusCode::kInvalidArgument);
}

}  // namespace generate_batch_test
}  // namespace varve
