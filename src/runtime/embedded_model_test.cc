// What the embedded model promises: it reads its own text back, finds facts, and shows what
// compression costs.

#include "runtime/embedded_model.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "runtime/eval/recall_evaluator.h"
#include "runtime/eval/recall_prompts.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/gguf/gguf_fingerprint.h"
#include "runtime/model/open_model.h"
#include "varve/codebook.h"

namespace varve {
namespace embedded_model_test {

class EmbeddedModelTest : public testing::Test {
 protected:
  EmbeddedModelTest() {
    Result<std::shared_ptr<const GgufFile>> file =
        GgufFile::FromMemory(EmbeddedModel(), "embedded");
    EXPECT_TRUE(file.ok()) << file.status().message();
    file_ = *file;
    Result<std::shared_ptr<const DecoderModel>> model = LoadDecoderModel(*file);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(**file);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
  }

  static std::vector<EvalPlan> Plans(const std::vector<std::string>& texts) {
    std::vector<EvalPlan> plans;
    for (const std::string& text : texts) plans.push_back({text, *ParsePlan(text)});
    return plans;
  }

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Executor> executor_ = MakeThreadPool(0);
};

// The suites that take longer than a test under a sanitizer should.
class EmbeddedModelSlow : public EmbeddedModelTest {};

TEST_F(EmbeddedModelTest, IsSmallEnoughToShip) { EXPECT_LE(EmbeddedModel().size(), 34'500'000u); }

TEST_F(EmbeddedModelTest, CodebookIsThatOfTheModel) {
  const Result<Codebook> codebook = ParseCodebook(EmbeddedCodebook(), "embedded");
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  EXPECT_EQ(codebook->model_fingerprint, ModelFingerprint(*file_));
  const CacheShape& shape = model_->cache_shape();
  EXPECT_EQ(codebook->num_layers, shape.num_layers);
  EXPECT_EQ(codebook->num_kv_heads, shape.num_kv_heads);
  EXPECT_EQ(codebook->tables.size(), 8u);
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const int bits : {8, part == Part::kKey ? 7 : 5, 6, 4}) {
      const CodebookTable* table = codebook->Find(part, 64, bits);
      ASSERT_NE(table, nullptr) << bits;
      EXPECT_EQ(table->dim, shape.key_dim);
      EXPECT_EQ(table->grain, CodebookGrain::kHead);
    }
  }
  EXPECT_LE(EmbeddedCodebook().size(), 4'500'000u);
}

TEST_F(EmbeddedModelTest, EvaluationTextComesBackFromItsTokens) {
  const std::string_view text = EmbeddedEvalText();
  EncodeOptions plain;
  plain.add_special = false;
  const std::vector<int32_t> tokens = tokenizer_->Encode(text, plain);
  EXPECT_GT(tokens.size(), 40'000u);
  EXPECT_EQ(tokenizer_->Decode(tokens), text);
}

TEST_F(EmbeddedModelTest, DigitsAreTokensOfTheirOwn) {
  EncodeOptions plain;
  plain.add_special = false;
  EXPECT_EQ(tokenizer_->Encode(" 48213.", plain).size(), 7u);
}

TEST_F(EmbeddedModelSlow, ReadsProseAndShowsWhatCompressionCosts) {
  EncodeOptions plain;
  plain.add_special = false;
  const auto windows = CutWindows(tokenizer_->Encode(EmbeddedEvalText(), plain), 2048,
                                  tokenizer_->bos(), /*max_windows=*/2);
  ASSERT_TRUE(windows.ok()) << windows.status().message();
  const Result<WindowEvalResult> result = EvaluateWindows(
      model_, *tokenizer_, *windows, Plans({"q8_0", "q4_0", "q4_0r"}), {}, *executor_);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const PlanQuality& f16 = result->plans[0];
  const PlanQuality& q8 = result->plans[1];
  const PlanQuality& q4 = result->plans[2];
  const PlanQuality& q4_rotated = result->plans[3];
  EXPECT_LT(f16.bits_per_byte, 1.40);
  EXPECT_GT(f16.bits_per_byte, 0.9) << "too good for text that it has not seen";
  EXPECT_NEAR(q8.perplexity, f16.perplexity, 1e-3 * f16.perplexity);
  EXPECT_GT(q8.kl_mean, 0.0);
  EXPECT_LT(q8.kl_mean, q4_rotated.kl_mean);
  EXPECT_LT(q4_rotated.kl_mean, q4.kl_mean);
}

// What demotion leaves is not worse than the best rung for all pages that takes no more bytes.
TEST_F(EmbeddedModelSlow, DemotionIsNotDominatedByOneRungForAll) {
  EncodeOptions plain;
  plain.add_special = false;
  const std::vector<int32_t> tokens = tokenizer_->Encode(EmbeddedEvalText(), plain);
  const std::vector<std::string> rungs = {"q8_0", "q4_0r",     "t4", "k=t4,v=t3",
                                          "t3",   "k=t3,v=t2", "t2"};
  std::vector<std::string> plans = rungs;
  for (const char* ratio : {"1.8", "3", "4", "5", "6.5"})
    plans.push_back(std::string("evict=demote,ratio=") + ratio);
  for (const int ctx : {700, 1500}) {
    const auto windows = CutWindows(tokens, ctx, tokenizer_->bos(), /*max_windows=*/1);
    ASSERT_TRUE(windows.ok()) << windows.status().message();
    const Result<WindowEvalResult> result =
        EvaluateWindows(model_, *tokenizer_, *windows, Plans(plans), {}, *executor_);
    ASSERT_TRUE(result.ok()) << result.status().message();
    for (size_t i = 1 + rungs.size(); i < result->plans.size(); ++i) {
      const PlanQuality& demote = result->plans[i];
      for (size_t rung = 1; rung <= rungs.size(); ++rung) {
        const PlanQuality& uniform = result->plans[rung];
        // A decision lists its spans, in a few bytes.
        if (uniform.bytes_per_token > 1.005 * demote.bytes_per_token) continue;
        EXPECT_LE(demote.kl_mean, uniform.kl_mean + 2 * uniform.kl_sem)
            << demote.plan << " beside " << uniform.plan << " at " << ctx;
      }
    }
  }
}

// 38 of 40 is the promise; half of them are asked here.
TEST_F(EmbeddedModelSlow, FindsFactsThousandsOfTokensBack) {
  RecallOptions options;
  options.ctx = 3500;
  options.asked = 20;
  options.facts = 5;
  const auto prompts = MakeRecallPrompts(*tokenizer_, EmbeddedEvalText(), options);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 4u);
  const auto ask = [&](std::span<const RecallPrompt> some, const std::vector<std::string>& plans) {
    return EvaluateRecall(model_, *tokenizer_, some, Plans(plans), ProductPrecision::kF32,
                          *executor_);
  };
  const std::span<const RecallPrompt> all = *prompts;
  const Result<RecallResult> f16 = ask(all.subspan(1), {});
  ASSERT_TRUE(f16.ok()) << f16.status().message();
  const Result<RecallResult> both = ask(all.first(1), {"q8_0"});
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_GE(f16->plans[0].hits + both->plans[0].hits, 19) << "of 20";
  EXPECT_EQ(both->plans[1].answers.size(), 5u);
  EXPECT_GE(both->plans[1].hits, both->plans[0].hits - 1) << "of 5, with q8_0";
}

}  // namespace embedded_model_test
}  // namespace varve
