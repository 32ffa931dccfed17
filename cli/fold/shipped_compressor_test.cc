// What the shipped compressor promises: that it has learned something.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/fold/compressor_baselines.h"
#include "runtime/embedded_model.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/model/open_model.h"
#include "tests/gguf_testing.h"
#include "varve/compressor.h"

namespace varve::cli {
namespace shipped_compressor_test {

TEST(ShippedCompressor, IsThatOfTheModel) {
  const Result<Compressor> compressor = ParseCompressor(EmbeddedCompressor(), "embedded");
  ASSERT_TRUE(compressor.ok()) << compressor.status().message();
  EXPECT_EQ(compressor->num_layers(), 8);
  EXPECT_EQ(compressor->head_dim, 128);
  EXPECT_EQ(compressor->factor, 4);
  EXPECT_FALSE(compressor->has_image);
  EXPECT_LE(EmbeddedCompressor().size(), 3'500'000u);
}

TEST(ShippedCompressorSlow, BeatsTheMeanOfTheRowsAndItsOwnBeginning) {
  const TempFolder folder;
  const Result<Compressor> trained = ParseCompressor(EmbeddedCompressor(), "embedded");
  ASSERT_TRUE(trained.ok());
  ASSERT_TRUE(SaveCompressor(MeanPoolingLike(*trained), folder.File("mean.bin")).ok());
  ASSERT_TRUE(SaveCompressor(RandomLike(*trained, 1), folder.File("random.bin")).ok());

  const auto file = GgufFile::FromMemory(EmbeddedModel(), "embedded");
  ASSERT_TRUE(file.ok());
  const auto model = LoadDecoderModel(*file);
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

}  // namespace shipped_compressor_test
}  // namespace varve::cli
