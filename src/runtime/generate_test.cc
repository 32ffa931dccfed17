#include "runtime/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model/open_model.h"
#include "tests/tiny_model.h"

namespace varve {
namespace generate_test {

constexpr int kVocab = 258;
constexpr int kContext = 160;

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = GgufFile::FromMemory(bytes_, "tiny");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto model = LoadDecoderModel(*file);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    runner_ = model_->MakeRunner(*executor_);
    options_.max_tokens = 12;
    options_.sampler.temperature = 0.9f;
    options_.sampler.seed = 3;
  }

  // A fresh cache for each call.
  Result<Generation> Run(const std::string& plan = "f16", const GenerateCallbacks& callbacks = {}) {
    CacheOptions cache_options;
    cache_options.plan = *ParsePlan(plan);
    cache_options.executor = executor_.get();
    cache_ = Cache::Create(model_->cache_shape(), std::move(cache_options)).value();
    sequence_ = *cache_->CreateSequence();
    return Generate(*runner_, *cache_, sequence_, prompt_, options_, callbacks);
  }
  std::vector<int32_t> Tokens(const std::string& plan = "f16") {
    Result<Generation> generation = Run(plan);
    EXPECT_TRUE(generation.ok()) << generation.status().message();
    return generation.ok() ? generation->tokens : std::vector<int32_t>();
  }
  int64_t Position() const { return *cache_->NextPosition(sequence_); }

  std::vector<std::byte> bytes_ = TinyModel({.context = kContext}).Build();
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<DecoderRunner> runner_;
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_;
  std::vector<int32_t> prompt_ = {1, 17, 5, 80, 33};
  GenerateOptions options_;
};

TEST_F(GenerateTest, TheSameSeedGivesTheSameTokens) {
  const std::vector<int32_t> first = Tokens();
  EXPECT_EQ(Tokens(), first);
  options_.sampler.seed = 4;
  EXPECT_NE(Tokens(), first);
}

TEST_F(GenerateTest, ThreadsDoNotMatter) {
  const std::vector<int32_t> two = Tokens();
  executor_ = MakeThreadPool(1);
  runner_ = model_->MakeRunner(*executor_);
  EXPECT_EQ(Tokens(), two);
}

TEST_F(GenerateTest, StopsAfterMaxTokensAndLeavesTheLastOutOfTheCache) {
  Result<Generation> generation = Run();
  ASSERT_TRUE(generation.ok()) << generation.status().message();
  EXPECT_EQ(generation->stop, StopReason::kMaxTokens);
  EXPECT_EQ(generation->tokens.size(), 12u);
  EXPECT_EQ(generation->prompt_tokens, 5);
  EXPECT_EQ(generation->decode_steps, 11);
  EXPECT_EQ(Position(), 5 + 11);
  EXPECT_GT(generation->decode_tokens_per_s(), 0);
}

TEST_F(GenerateTest, AShorterRunIsAPrefixOfALongerOne) {
  const std::vector<int32_t> longer = Tokens();
  options_.max_tokens = 5;
  const std::vector<int32_t> shorter = Tokens();
  ASSERT_EQ(shorter.size(), 5u);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
}

TEST_F(GenerateTest, NoTokensMeansThePromptAlone) {
  options_.max_tokens = 0;
  Result<Generation> generation = Run();
  ASSERT_TRUE(generation.ok());
  EXPECT_TRUE(generation->tokens.empty());
  EXPECT_EQ(Position(), 5);
}

TEST_F(GenerateTest, StopsAtAnEndTokenWithoutGivingIt) {
  const std::vector<int32_t> all = Tokens();
  // A token that comes first somewhere behind the beginning.
  size_t at = 4;
  while (std::find(all.begin(), all.begin() + static_cast<ptrdiff_t>(at), all[at]) !=
         all.begin() + static_cast<ptrdiff_t>(at)) {
    ++at;
    ASSERT_LT(at, all.size());
  }
  options_.is_end = [&](int32_t token) { return token == all[at]; };
  std::vector<int32_t> seen;
  GenerateCallbacks callbacks;
  callbacks.on_token = [&](int32_t token) {
    seen.push_back(token);
    return true;
  };
  Result<Generation> generation = Run("f16", callbacks);
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->stop, StopReason::kEndToken);
  EXPECT_EQ(generation->tokens, std::vector<int32_t>(all.begin(), all.begin() + at));
  EXPECT_EQ(seen, generation->tokens);
}

TEST_F(GenerateTest, TheCallbackCanStop) {
  int count = 0;
  GenerateCallbacks callbacks;
  callbacks.on_token = [&](int32_t) { return ++count < 3; };
  Result<Generation> generation = Run("f16", callbacks);
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->stop, StopReason::kStopped);
  EXPECT_EQ(generation->tokens.size(), 3u);
}

TEST_F(GenerateTest, ThePromptCanBeStopped) {
  prompt_.assign(150, 9);  // a decision of the policy ends the first step
  GenerateCallbacks callbacks;
  callbacks.on_prompt = [](int64_t) { return false; };
  Result<Generation> generation = Run("evict=h2o,sink=16,recent=32,trigger=64", callbacks);
  ASSERT_TRUE(generation.ok()) << generation.status().message();
  EXPECT_EQ(generation->stop, StopReason::kStopped);
  EXPECT_TRUE(generation->tokens.empty());
  EXPECT_EQ(generation->prompt_tokens, Position());
  EXPECT_LT(Position(), 150);
}

TEST_F(GenerateTest, StopsWhenTheContextIsFull) {
  options_.max_context = 9;
  Result<Generation> generation = Run();
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->stop, StopReason::kContext);
  EXPECT_EQ(Position(), 9);
  EXPECT_EQ(generation->tokens.size(), 5u);  // the last needs no place
  prompt_.assign(9, 2);
  generation = Run();
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->tokens.size(), 1u);
}

TEST_F(GenerateTest, RefusesWhatCannotWork) {
  prompt_.assign(161, 2);
  EXPECT_EQ(Run().status().message(), "prompt: 161 tokens at position 0 > context 160");
  options_.max_context = 100;
  EXPECT_EQ(Run().status().message(), "prompt: 161 tokens at position 0 > context 100");
  options_.max_context = 0;
  prompt_ = {1, kVocab};
  EXPECT_EQ(Run().status().message(),
            "prompt: token 258 at index 1 is outside the vocabulary of 258");
  prompt_ = {1, -1};
  EXPECT_EQ(Run().status().code(), StatusCode::kInvalidArgument);
  prompt_.clear();
  EXPECT_EQ(Run().status().message(), "prompt: no tokens");
  prompt_ = {1};
  options_.sampler.temperature = -1;
  EXPECT_EQ(Run().status().code(), StatusCode::kInvalidArgument);
}

// While nothing is sealed, every plan is its open pages.
TEST_F(GenerateTest, PlansDifferOnlyOncePagesAreSealed) {
  const std::vector<int32_t> exact = Tokens("f16");
  EXPECT_EQ(Tokens("q4_0"), exact);
  prompt_.assign(100, 9);
  for (size_t i = 0; i < prompt_.size(); ++i) prompt_[i] = static_cast<int32_t>(i * 37 % kVocab);
  EXPECT_EQ(Tokens("q4_0,open=160"), Tokens("f16"));
}

TEST_F(GenerateTest, ASecondPromptContinuesTheFirst) {
  options_.sampler.temperature = 0;
  const std::vector<int32_t> first = Tokens();
  const std::vector<int32_t> more = {first.back(), 40, 41};
  Result<Generation> second = Generate(*runner_, *cache_, sequence_, more, options_, {});
  ASSERT_TRUE(second.ok()) << second.status().message();
  // The same tokens as one prompt.
  prompt_.insert(prompt_.end(), first.begin(), first.end());
  prompt_.insert(prompt_.end(), {40, 41});
  EXPECT_EQ(Tokens(), second->tokens);
}

TEST_F(GenerateTest, AStepThatFailsEndsItWithWhatIsDone) {
  prompt_.resize(20, 7);
  options_.max_tokens = 120;
  const std::vector<int32_t> all = Tokens("f16,page=16");
  CacheOptions cache_options;
  cache_options.plan = *ParsePlan("f16,page=16");
  cache_options.executor = executor_.get();
  cache_options.max_bytes = cache_->Stats().bytes_held / 2;
  cache_ = Cache::Create(model_->cache_shape(), std::move(cache_options)).value();
  sequence_ = *cache_->CreateSequence();
  const Result<Generation> half = Generate(*runner_, *cache_, sequence_, prompt_, options_, {});
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_EQ(half->stop, StopReason::kFailed);
  EXPECT_EQ(half->error.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(half->prompt_tokens, 20);
  ASSERT_GT(half->tokens.size(), 0u);
  ASSERT_LT(half->tokens.size(), all.size());
  EXPECT_TRUE(std::equal(half->tokens.begin(), half->tokens.end(), all.begin()));
  EXPECT_EQ(half->decode_steps + 20, Position());
}

TEST_F(GenerateTest, HistoryReachesTheRepetitionPenalty) {
  options_.sampler.temperature = 0;
  options_.sampler.repetition_penalty = 100;
  options_.max_tokens = 1;
  const std::vector<int32_t> free = Tokens();
  options_.history = free;
  EXPECT_NE(Tokens(), free);
}

}  // namespace generate_test
}  // namespace varve
