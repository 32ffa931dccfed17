#include "runtime/solve/plan_probe.h"

#include <gtest/gtest.h>

#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/model/open_model.h"
#include "tests/tiny_model.h"

namespace varve {
namespace plan_probe_test {

class PlanProbeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWindow = 300;  // four pages and a part

  PlanProbeTest() {
    const auto file = GgufFile::FromMemory(bytes_, "tiny");
    EXPECT_TRUE(file.ok()) << file.status().message();
    model_ = *LoadDecoderModel(*file);
    auto tokenizer = Tokenizer::Create(**file);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
    std::string text;
    for (int i = 0; text.size() < 1000; ++i) {
      text += "Tide " + std::to_string(i * 37 % 101) + " came in. ";
    }
    EncodeOptions encode;
    encode.add_special = false;
    windows_ = *CutWindows(tokenizer_->Encode(text, encode), kWindow, tokenizer_->bos(), 2);
  }

  std::unique_ptr<PlanProbe> Make(Executor& executor, int64_t tail = 40) const {
    auto probe = PlanProbe::Make(model_, windows_, tail, ProductPrecision::kF32, executor);
    EXPECT_TRUE(probe.ok()) << probe.status().message();
    while (!(*probe)->ready()) EXPECT_TRUE((*probe)->ReadNextWindow().ok());
    return std::move(*probe);
  }
  static double MustLose(PlanProbe& probe, const std::string& plan) {
    const Result<double> loss = probe.Loss(*ParsePlan(plan));
    EXPECT_TRUE(loss.ok()) << plan << ": " << loss.status().message();
    return loss.ok() ? *loss : -1;
  }

  std::vector<std::byte> bytes_ = TinyModel().Build();
  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::vector<int32_t>> windows_;
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
};

TEST_F(PlanProbeTest, LosesNothingWithTheExactRows) {
  const auto probe = Make(*executor_);
  EXPECT_EQ(probe->tokens_per_loss(), 80);
  EXPECT_EQ(MustLose(*probe, "f16"), 0);
  EXPECT_EQ(MustLose(*probe, "q4_0,open=100000"), 0);
}

TEST_F(PlanProbeTest, LosesMoreWithFewerBitsAndWithMoreLayers) {
  const auto probe = Make(*executor_);
  const double q8 = MustLose(*probe, "q8_0");
  const double q4 = MustLose(*probe, "q4_0");
  EXPECT_GT(q8, 0);
  EXPECT_GT(q4, 10 * q8);
  EXPECT_LT(MustLose(*probe, "0: q4_0"), q4);
  EXPECT_LT(MustLose(*probe, "k=q4_0"), q4);
}

// The first layer's rows are those of the embedding, whatever the cache: there a probe and an
// evaluation of the last tokens see the same pages.
TEST_F(PlanProbeTest, IsNearAnEvaluationOfTheSameTokens) {
  const auto probe = Make(*executor_, 44);
  const std::vector<EvalPlan> plans = {{"q4_0", *ParsePlan("q4_0")}};
  const auto whole =
      EvaluateWindows(model_, *tokenizer_, windows_, plans, WindowEvalOptions(), *executor_);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const double loss = MustLose(*probe, "q4_0");
  EXPECT_GT(loss, 0.3 * whole->plans[1].kl_mean);
  EXPECT_LT(loss, 3 * whole->plans[1].kl_mean);
}

TEST_F(PlanProbeTest, DoesNotDependOnThreadsOrOnWhatWasProbedBefore) {
  const std::unique_ptr<Executor> single = MakeThreadPool(1);
  const auto one = Make(*single);
  const auto two = Make(*executor_);
  const double alone = MustLose(*one, "q4_0r");
  MustLose(*two, "q8_0");
  EXPECT_EQ(MustLose(*two, "q4_0r"), alone);
  EXPECT_EQ(MustLose(*two, "q4_0r"), alone);
}

TEST_F(PlanProbeTest, RefusesWhatItCannotTell) {
  const auto tail = PlanProbe::Make(model_, windows_, kWindow, ProductPrecision::kF32, *executor_);
  ASSERT_FALSE(tail.ok());
  EXPECT_NE(tail.status().message().find("300 tokens in a window of 300"), std::string::npos);
  EXPECT_FALSE(PlanProbe::Make(model_, {}, 10, ProductPrecision::kF32, *executor_).ok());

  auto probe = PlanProbe::Make(model_, windows_, 40, ProductPrecision::kF32, *executor_);
  ASSERT_TRUE(probe.ok());
  EXPECT_EQ((*probe)->Loss(Plan()).status().code(), StatusCode::kFailedPrecondition);
  while (!(*probe)->ready()) ASSERT_TRUE((*probe)->ReadNextWindow().ok());
  const Status evict = (*probe)->Loss(*ParsePlan("h2o,ratio=2")).status();
  EXPECT_NE(evict.message().find("evict="), std::string::npos) << evict.message();
}

}  // namespace plan_probe_test
}  // namespace varve
