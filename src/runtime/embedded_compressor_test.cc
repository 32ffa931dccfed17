// What the shipped compressor promises: that it has learned something.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fold/compressor_testing.h"
#include "runtime/embedded_model.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "tests/gguf_testing.h"
#include "varve/compressor.h"

namespace varve {
namespace {

// The mean of the rows, as a network: biases hold the ReLUs open and are taken off at the end.
Compressor MeanPooling(const Compressor& like) {
  constexpr float kOpen = 256;  // no mean of rows is below -kOpen
  Compressor mean = RandomCompressor({.dtype = CompressorDtype::kF32,
                                      .num_layers = like.num_layers(),
                                      .head_dim = like.head_dim,
                                      .factor = like.factor,
                                      .has_image = false});
  for (auto& layer : mean.layers) {
    for (size_t part = 0; part < 2; ++part) {
      for (size_t slot = 0; slot < kCompressorSlots; ++slot) {
        CompressorLinear& linear = layer[part].slots[slot];
        const float weight = slot == 0 ? 1.0f / static_cast<float>(like.factor) : 1.0f;
        for (int row = 0; row < linear.rows; ++row) {
          for (int col = 0; col < linear.cols; ++col) {
            StoreWeight(mean.dtype, col % linear.rows == row ? weight : 0.0f, linear,
                        static_cast<size_t>(row) * static_cast<size_t>(linear.cols) +
                            static_cast<size_t>(col));
          }
        }
        linear.bias.assign(static_cast<size_t>(linear.rows),
                           slot == 0 ? kOpen : (slot == 2 ? -kOpen : 0.0f));
      }
    }
  }
  return mean;
}

TEST(EmbeddedCompressor, IsThatOfTheModel) {
  const Result<Compressor> compressor = ParseCompressor(EmbeddedCompressor(), "embedded");
  ASSERT_TRUE(compressor.ok()) << compressor.status().message();
  EXPECT_EQ(compressor->num_layers(), 8);
  EXPECT_EQ(compressor->head_dim, 128);
  EXPECT_EQ(compressor->factor, 4);
  EXPECT_FALSE(compressor->has_image);
  EXPECT_LE(EmbeddedCompressor().size(), 3'500'000u);
}

TEST(EmbeddedCompressorSlow, BeatsTheMeanOfTheRowsAndItsOwnBeginning) {
  const TempFolder folder;
  const Result<Compressor> trained = ParseCompressor(EmbeddedCompressor(), "embedded");
  ASSERT_TRUE(trained.ok());
  ASSERT_TRUE(SaveCompressor(MeanPooling(*trained), folder.File("mean.bin")).ok());
  CompressorSpec spec;
  spec.num_layers = trained->num_layers();
  spec.head_dim = trained->head_dim;
  spec.factor = trained->factor;
  spec.has_image = false;
  ASSERT_TRUE(SaveCompressor(RandomCompressor(spec), folder.File("random.bin")).ok());

  const auto file = GgufFile::FromMemory(EmbeddedModel(), "embedded");
  ASSERT_TRUE(file.ok());
  const auto model = LlamaModel::Load(*file);
  const auto tokenizer = Tokenizer::Create(**file);
  ASSERT_TRUE(model.ok() && tokenizer.ok());
  std::vector<EvalPlan> plans;
  for (const std::string& text : {std::string("fold"), "fold=" + folder.File("mean.bin"),
                                  "fold=" + folder.File("random.bin")})
    plans.push_back({text, *ParsePlan(text)});
  EncodeOptions plain;
  plain.add_special = false;
  const auto windows = CutWindows((*tokenizer)->Encode(EmbeddedEvalText(), plain), 2048,
                                  (*tokenizer)->bos(), /*max_windows=*/2);
  ASSERT_TRUE(windows.ok());
  const std::unique_ptr<Executor> executor = MakeThreadPool(0);
  const Result<WindowEvalResult> result =
      EvaluateWindows(*model, **tokenizer, *windows, plans, {}, *executor);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const double fold = result->plans[1].kl_mean;
  const double mean = result->plans[2].kl_mean;
  const double random = result->plans[3].kl_mean;
  EXPECT_GT(fold, 1e-4) << "nothing was folded";
  EXPECT_LT(1.4 * fold, mean);
  EXPECT_LT(10 * fold, random);
  EXPECT_GT(result->plans[1].ratio, 1.5);  // half of the window is folded
}

}  // namespace
}  // namespace varve
