// Models of the Llama family on a GPU beside the same models on the CPU: logits that differ by the
// rounding of f16, for every part that a layer may have. Compiled twice: for emulated kernels
// (src/cuda/emulation) with a loop in the place of cuBLASLt, and for a real GPU (gpu_model_check).

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/embedded_model.h"
#include "runtime/generate.h"
#include "runtime/model/open_model.h"
#include "tests/cuda/model_sides.h"

namespace varve {
namespace cuda_model_tests {

TEST(CudaModel, AgreesWithTheCpuForEveryKindOfLayer) {
  for (const LlamaConfig& config : {Plain(), LikeQwen2(), LikeQwen3(), LikeGemma()}) {
    SCOPED_TRACE(config.name);
    Sides sides(config, WeightType::kF16);
    const double error = sides.Compare();
    EXPECT_LT(error, kF16Error);
    EXPECT_GT(error, 1e-6);  // too good: it was the CPU that ran
  }
}

TEST(CudaModel, TakesWeightsOfAnyType) {
  for (const WeightType type : {WeightType::kF32, WeightType::kBF16, WeightType::kQ8_0,
                                WeightType::kQ4_0, WeightType::kIQ4_NL}) {
    SCOPED_TRACE(InfoOf(type).name);
    Sides sides(Plain(), type);
    EXPECT_LT(sides.Compare(), type == WeightType::kBF16 ? kBF16Error : kF16Error);
  }
}

// Their blocks are of 256 values.
TEST(CudaModel, TakesWeightsInLargeBlocks) {
  LlamaConfig config = Plain();
  config.width = config.ffn_width = 256;
  for (const WeightType type : {WeightType::kQ4K, WeightType::kQ6K, WeightType::kQ2K,
                                WeightType::kQ3K, WeightType::kIQ4_XS}) {
    SCOPED_TRACE(InfoOf(type).name);
    Sides sides(config, type);
    EXPECT_LT(sides.Compare(), kF16Error);
  }
}

TEST(CudaModel, RunsOnPlansThatSeal) {
  for (const char* plan : {"q8_0,open=64", "t4,open=64"}) {
    SCOPED_TRACE(plan);
    Sides sides(Plain(), WeightType::kF16, plan);
    EXPECT_LT(sides.Compare(), 2 * kF16Error);
  }
}

TEST(CudaModel, OnlyTheLogitsAskedForAreThere) {
  Sides sides(Plain(), WeightType::kF16);
  const std::vector<int32_t> tokens = Tokens(40, 1);
  const SequenceId a = *sides.gpu->cache->CreateSequence();
  const SequenceId b = *sides.gpu->cache->CreateSequence();
  const std::vector<float> all = sides.gpu->Read(a, tokens);
  const std::vector<float> last = sides.gpu->Read(b, tokens, Logits::kLast);
  EXPECT_EQ(last, std::vector<float>(all.end() - 96, all.end()));
}

TEST(CudaModel, AllocatesNothingAfterItsFirstSteps) {
  Sides sides(Plain(), WeightType::kF16);
  const SequenceId sequence = *sides.gpu->cache->CreateSequence();
  sides.gpu->Read(sequence, Tokens(20, 1));
  for (int step = 0; step < 8; ++step) sides.gpu->Decode({{sequence, step}});
  const size_t bytes = sides.gpu->runner->scratch_bytes();
  for (int step = 0; step < 3; ++step) sides.gpu->Decode({{sequence, step}});
  EXPECT_EQ(sides.gpu->runner->scratch_bytes(), bytes);
}

// The model that ships with the program, greedy.
TEST(CudaModel, WritesTheTextOfTheCpu) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "this program has no embedded model";
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const auto file = GgufFile::FromMemory(EmbeddedModel(), "the embedded model");
  ASSERT_OK(file.status());
  const auto model = LoadDecoderModel(*file);
  ASSERT_OK(model.status());
  const auto placed = (*model)->PlaceOnGpu(0, *executor);
  ASSERT_OK(placed.status());
  const auto tokenizer = (*placed)->MakeTokenizer();
  ASSERT_OK(tokenizer.status());
  const std::vector<int32_t> prompt = (*tokenizer)->Encode("The old man looked at the sea and", {});
  GenerateOptions options;
  options.max_tokens = 8;
  options.sampler.temperature = 0.0f;
  std::vector<std::vector<int32_t>> texts;
  for (const auto& side : {*model, *placed}) {
    Side run(side, *executor, "q8_0");
    const Result<Generation> text =
        Generate(*run.runner, *run.cache, *run.cache->CreateSequence(), prompt, options, {});
    ASSERT_OK(text.status());
    texts.push_back(text->tokens);
  }
  EXPECT_EQ(texts[1], texts[0]);
}

}  // namespace cuda_model_tests
}  // namespace varve
