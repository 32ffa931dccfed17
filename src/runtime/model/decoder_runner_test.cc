// The seam for models, with a family made up here: what every family gets from DecoderRunner.

#include "runtime/model/decoder_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/generate.h"
#include "runtime/model/decoder_model.h"
#include "tests/cache_testing.h"

namespace varve {
namespace decoder_runner_test {

constexpr int kVocab = 11;

DecoderInfo InfoOfCounter() {
  DecoderInfo info;
  info.architecture = "counter";
  info.name = "counter";
  info.shape.num_layers = 2;
  info.shape.num_kv_heads = 1;
  info.shape.group_size = 1;
  info.shape.key_dim = 32;
  info.shape.value_dim = 32;
  info.vocab_size = kVocab;
  info.context = 4096;
  return info;
}

// Predicts the id after the last one; its rows in the cache are the id.
class CounterRunner final : public DecoderRunner {
 public:
  explicit CounterRunner(std::shared_ptr<const DecoderModel> model)
      : DecoderRunner(std::move(model)) {}
  size_t scratch_bytes() const override { return 0; }

  std::vector<int> steps;  // tokens of each

 private:
  Status RunStep(Cache& cache, std::span<const StepEntry> entries, std::span<const int32_t> tokens,
                 int logits_from, float* logits) override {
    const auto count = static_cast<int>(tokens.size());
    steps.push_back(count);
    std::vector<float> rows;  // [count, 32]
    for (const int32_t token : tokens) rows.insert(rows.end(), 32, static_cast<float>(token));
    VARVE_RETURN_IF_ERROR(cache.BeginStep(entries));
    for (int layer = 0; layer < cache.shape().num_layers; ++layer) {
      size_t row = 0;
      for (const StepEntry& entry : entries) {
        RowsView view;
        view.data = rows.data() + row * 32;
        view.num_tokens = entry.num_tokens;
        VARVE_RETURN_IF_ERROR(cache.Append(layer, entry.sequence, view, view));
        row += static_cast<size_t>(entry.num_tokens);
      }
    }
    VARVE_RETURN_IF_ERROR(cache.EndStep());
    clock().Lap(&ForwardTimes::other_us);
    for (int t = logits_from; t < count; ++t) {
      float* out = logits + static_cast<size_t>(t - logits_from) * kVocab;
      std::fill_n(out, kVocab, 0.0f);
      out[(tokens[static_cast<size_t>(t)] + 1) % kVocab] = 1.0f;
    }
    return {};
  }
};

class CounterModel final : public DecoderModel, public std::enable_shared_from_this<CounterModel> {
 public:
  CounterModel() : DecoderModel(InfoOfCounter()) {}
  std::unique_ptr<DecoderRunner> MakeRunner(Executor&, ProductPrecision) const override {
    return std::make_unique<CounterRunner>(shared_from_this());
  }

 private:
  Result<std::unique_ptr<Tokenizer>> ReadTokenizer() const override {
    return Internal("a model without a file was asked for its tokenizer");
  }
};

class DecoderRunnerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const CounterModel> model_ = std::make_shared<const CounterModel>();
  CounterRunner runner_{model_};
};

TEST_F(DecoderRunnerTest, AStepHoldsWhatTheCacheTakesUpToTheLimitOfActivations) {
  for (const char* plan : {"f16", "q8_0", "age=f16:96/q4_0,exact=0", "evict=h2o,ratio=3.5"}) {
    const std::unique_ptr<Cache> cache = MakeCache(model_->cache_shape(), plan);
    const SequenceId id = *cache->CreateSequence();
    const std::vector<int32_t> tokens(1500, 3);
    std::vector<int> expected;
    int left = 1500;
    int most = *cache->MaxStepTokens(id);
    runner_.steps.clear();
    ASSERT_OK(runner_.Forward(*cache, id, tokens, Logits::kNone, nullptr, [&](int64_t done) {
      expected.push_back(std::min({left, most, kMaxForwardTokens}));
      left = 1500 - static_cast<int>(done);
      most = *cache->MaxStepTokens(id);
      return true;
    }));
    EXPECT_EQ(runner_.steps, expected) << plan;
    EXPECT_EQ(left, 0) << plan;
    EXPECT_LE(*std::max_element(runner_.steps.begin(), runner_.steps.end()), kMaxForwardTokens);
    EXPECT_EQ(*cache->NextPosition(id), 1500);
  }
}

TEST_F(DecoderRunnerTest, LogitsAreOfTheLastTokenOrOfAllAcrossSteps) {
  const std::unique_ptr<Cache> cache = MakeCache(model_->cache_shape(), "q8_0");
  const SequenceId id = *cache->CreateSequence();
  std::vector<int32_t> tokens;
  for (int i = 0; i < 700; ++i) tokens.push_back(i * 7 % kVocab);
  std::vector<float> logits(tokens.size() * kVocab, -1.0f);
  ASSERT_OK(runner_.Forward(*cache, id, tokens, Logits::kAll, logits.data()));
  ASSERT_GT(runner_.steps.size(), 1u);
  for (size_t t = 0; t < tokens.size(); ++t) {
    EXPECT_EQ(logits[t * kVocab + static_cast<size_t>((tokens[t] + 1) % kVocab)], 1.0f) << t;
  }
  ASSERT_OK(runner_.Forward(*cache, id, tokens, Logits::kLast, logits.data()));
  EXPECT_EQ(logits[static_cast<size_t>((tokens.back() + 1) % kVocab)], 1.0f);
}

TEST_F(DecoderRunnerTest, SequencesOfADecodeStepHaveOneRowEach) {
  const std::unique_ptr<Cache> cache = MakeCache(model_->cache_shape(), "f16");
  const std::vector<DecodeEntry> entries = {{*cache->CreateSequence(), 4},
                                            {*cache->CreateSequence(), 9}};
  std::vector<float> logits(2 * kVocab);
  ASSERT_OK(runner_.Decode(*cache, entries, logits.data()));
  EXPECT_EQ(runner_.steps, std::vector<int>{2});
  EXPECT_EQ(logits[5], 1.0f);
  EXPECT_EQ(logits[kVocab + 10], 1.0f);
  EXPECT_GT(runner_.times().total_us(), 0.0);
  EXPECT_EQ(runner_.times().linear_us, 0.0);
}

TEST_F(DecoderRunnerTest, AFamilyWithoutKernelsForAGpuRefuses) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const Status status = model_->PlaceOnGpu(0, *executor).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("has no kernels for a GPU"), std::string::npos);
  CacheOptions options;
  model_->PlaceCache(&options);
  EXPECT_EQ(options.device, Device::kCpu);
}

TEST_F(DecoderRunnerTest, AnyFamilyGenerates) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const std::unique_ptr<DecoderRunner> runner =
      model_->MakeRunner(*executor, ProductPrecision::kF32);
  const std::unique_ptr<Cache> cache = MakeCache(model_->cache_shape(), "f16");
  GenerateOptions options;
  options.max_tokens = 5;
  options.sampler.temperature = 0;
  const std::vector<int32_t> prompt = {1, 7};
  const Result<Generation> text =
      Generate(*runner, *cache, *cache->CreateSequence(), prompt, options, {});
  ASSERT_OK(text.status());
  EXPECT_EQ(text->tokens, (std::vector<int32_t>{8, 9, 10, 0, 1}));
}

TEST_F(DecoderRunnerTest, AModelWithoutAFileSaysThatItHasNoTokenizer) {
  const Status status = model_->MakeTokenizer().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "counter: random weights have no tokenizer; name a model file");
}

}  // namespace decoder_runner_test
}  // namespace varve
