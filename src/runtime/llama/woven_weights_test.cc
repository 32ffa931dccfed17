// Repacked models: the same answers from the second copy of the weights.

#include "runtime/llama/woven_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "runtime/llama/llama_testing.h"
#include "runtime/model_cache.h"

namespace varve {
namespace woven_weights_test {

std::shared_ptr<const DecoderModel> SmallModel(WeightType type) {
  LlamaConfig config = *PresetConfig("small-1024");
  config.num_layers = 2;
  config.vocab_size = 100;  // not whole bands
  return *LlamaModel::Random(config, type, 5);
}

// Of the last of eight tokens, each a step of its own.
std::vector<float> LogitsOf(const DecoderModel& model, Executor& executor) {
  CacheOptions options = CacheOptionsFor(model);
  options.executor = &executor;
  Result<std::unique_ptr<Cache>> cache = Cache::Create(model.cache_shape(), std::move(options));
  EXPECT_OK(cache.status());
  const SequenceId sequence = *(*cache)->CreateSequence();
  const std::unique_ptr<DecoderRunner> runner = model.MakeRunner(executor);
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  for (int32_t token = 1; token <= 8; ++token) {
    EXPECT_OK(runner->Forward(**cache, sequence, {&token, 1}, Logits::kLast, logits.data()));
  }
  return logits;
}

TEST(WovenWeights, GiveTheSameLogitsToRounding) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  for (const WeightType type : {WeightType::kQ4K, WeightType::kQ6K, WeightType::kQ5_0,
                                WeightType::kIQ4_NL, WeightType::kIQ4_XS}) {
    const std::shared_ptr<const DecoderModel> model = SmallModel(type);
    if (model->RepackBytes() == 0)
      GTEST_SKIP() << "this machine gains nothing from repacked weights";
    const auto repacked = model->Repack(*executor);
    ASSERT_OK(repacked.status());
    const std::vector<float> expected = LogitsOf(*model, *executor);
    const std::vector<float> logits = LogitsOf(**repacked, *executor);
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 2e-3) << i;
    EXPECT_NE(logits, expected);  // or the second copy was not read
  }
}

TEST(WovenWeights, OutliveTheModelThatTheyWereMadeOf) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  std::shared_ptr<const DecoderModel> model = SmallModel(WeightType::kQ4_0);
  const std::vector<float> expected = LogitsOf(*model, *executor);
  const auto repacked = model->Repack(*executor);
  ASSERT_OK(repacked.status());
  model.reset();
  const std::vector<float> logits = LogitsOf(**repacked, *executor);
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 2e-3) << i;
}

TEST(WovenWeights, OfBytesFloatsOrLessThanFourBitsAreNone) {
  EXPECT_EQ(SmallModel(WeightType::kQ8_0)->RepackBytes(), 0U);
  EXPECT_EQ(SmallModel(WeightType::kF16)->RepackBytes(), 0U);
  EXPECT_EQ(SmallModel(WeightType::kQ2K)->RepackBytes(), 0U);
  EXPECT_EQ(SmallModel(WeightType::kQ3K)->RepackBytes(), 0U);
}

}  // namespace woven_weights_test
}  // namespace varve
