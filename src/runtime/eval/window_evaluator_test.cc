#include "runtime/eval/window_evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/eval/text_windows.h"
#include "runtime/model/open_model.h"
#include "tests/tiny_model.h"

namespace varve {
namespace window_evaluator_test {

class WindowEvaluator : public ::testing::Test {
 protected:
  static constexpr int64_t kCtx = 200;  // three pages and a part

  WindowEvaluator() {
    const auto file = GgufFile::FromMemory(bytes_, "tiny");
    EXPECT_TRUE(file.ok()) << file.status().message();
    auto model = LoadDecoderModel(*file);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    auto tokenizer = Tokenizer::Create(**file);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
  }

  std::vector<std::vector<int32_t>> Windows(int count, int64_t ctx = kCtx) const {
    std::string text;
    for (int i = 0; static_cast<int64_t>(text.size()) < count * ctx; ++i) {
      text += "Tide " + std::to_string(i * 37 % 101) + " came in. ";
    }
    EncodeOptions encode;
    encode.add_special = false;
    auto windows = CutWindows(tokenizer_->Encode(text, encode), ctx, tokenizer_->bos(), count);
    EXPECT_TRUE(windows.ok()) << windows.status().message();
    return *windows;
  }

  Result<WindowEvalResult> Evaluate(
      const std::vector<std::vector<int32_t>>& windows, const std::vector<std::string>& plans,
      int threads = 2, const WindowEvalOptions& options = {},
      const std::function<bool(const EvalProgress&)>& progress = {}) const {
    std::vector<EvalPlan> parsed;
    for (const std::string& plan : plans) parsed.push_back({plan, *ParsePlan(plan)});
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    return EvaluateWindows(model_, *tokenizer_, windows, parsed, options, *executor, progress);
  }

  std::vector<std::byte> bytes_ = TinyModel().Build();
  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(WindowEvaluator, PerplexityIsThatOfTheLogits) {
  const auto windows = Windows(2);
  const auto result = Evaluate(windows, {});
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->plans.size(), 1u);

  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  double loss = 0;
  size_t bytes = 0;
  for (const std::vector<int32_t>& window : windows) {
    CacheOptions options;
    options.executor = executor.get();
    const auto cache = Cache::Create(model_->cache_shape(), options);
    const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
    std::vector<float> logits(window.size() * vocab);
    const SequenceId sequence = *(*cache)->CreateSequence();
    ASSERT_TRUE(runner->Forward(**cache, sequence, window, Logits::kAll, logits.data()).ok());
    for (size_t i = 0; i + 1 < window.size(); ++i) {
      double sum = 0;
      for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{logits[i * vocab + v]});
      loss += std::log(sum) - logits[i * vocab + static_cast<size_t>(window[i + 1])];
      bytes += tokenizer_->TokenBytes(window[i + 1]).size();
    }
  }
  const auto scored = static_cast<double>(2 * (kCtx - 1));
  EXPECT_EQ(result->tokens, 2 * (kCtx - 1));
  EXPECT_EQ(bytes, 2u * (kCtx - 1));  // BOS is not scored, and every byte is a token
  EXPECT_NEAR(std::log(result->plans[0].perplexity), loss / scored, 1e-6);
  EXPECT_NEAR(result->plans[0].bits_per_byte, loss / scored / std::log(2.0), 1e-6);
}

TEST_F(WindowEvaluator, F16AgainstItselfHasNoDivergence) {
  const auto result = Evaluate(Windows(2), {"f16"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->plans.size(), 2u);
  for (const PlanQuality& plan : result->plans) {
    EXPECT_EQ(plan.kl_mean, 0.0);
    EXPECT_EQ(plan.kl_p99, 0.0);
    EXPECT_EQ(plan.kl_sem, 0.0);
    EXPECT_EQ(plan.dlnppl, 0.0);
    EXPECT_EQ(plan.top1, 1.0);
    EXPECT_EQ(plan.ratio, 1.0);
    EXPECT_EQ(plan.perplexity, result->plans[0].perplexity);
  }
}

TEST_F(WindowEvaluator, ReallySeesTheCompression) {
  const auto result = Evaluate(Windows(3), {"q8_0", "q4_0,exact=0"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const PlanQuality& f16 = result->plans[0];
  const PlanQuality& q8 = result->plans[1];
  const PlanQuality& q4 = result->plans[2];
  EXPECT_EQ(q8.plan, "q8_0");
  EXPECT_GT(q8.kl_mean, 0.0);
  EXPECT_GT(q4.kl_mean, 4 * q8.kl_mean);
  EXPECT_GT(q4.kl_p99, q4.kl_mean);
  EXPECT_GT(q4.kl_sem, 0.0);
  EXPECT_LT(q4.top1, 1.0);
  EXPECT_NEAR(q4.dlnppl, std::log(q4.perplexity / f16.perplexity), 1e-12);
  EXPECT_GT(q8.ratio, 1.0);
  EXPECT_GT(q4.ratio, q8.ratio);
  EXPECT_DOUBLE_EQ(q4.ratio, f16.bytes_per_token / q4.bytes_per_token);
  // Two layers, K and V of two heads of 32 values in f16, and what pages and tables need.
  EXPECT_GE(f16.bytes_per_token, 2 * 2 * 2 * 32 * 2);
}

TEST_F(WindowEvaluator, FiguresDoNotDependOnThreads) {
  const auto windows = Windows(2);
  const auto one = Evaluate(windows, {"q4_0r,exact=0"}, 1);
  const auto three = Evaluate(windows, {"q4_0r,exact=0"}, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(one->plans[i].perplexity, three->plans[i].perplexity);
    EXPECT_EQ(one->plans[i].kl_mean, three->plans[i].kl_mean);
    EXPECT_EQ(one->plans[i].kl_p99, three->plans[i].kl_p99);
    EXPECT_EQ(one->plans[i].dlnppl_sem, three->plans[i].dlnppl_sem);
    EXPECT_EQ(one->plans[i].top1, three->plans[i].top1);
  }
}

TEST_F(WindowEvaluator, FiguresOfAPlanDoNotDependOnTheOthers) {
  const auto windows = Windows(1);
  const auto alone = Evaluate(windows, {"q4_0,exact=0"});
  const auto beside = Evaluate(windows, {"q8_0", "q4_0,page=16,exact=0", "q4_0,exact=0"});
  ASSERT_TRUE(alone.ok() && beside.ok());
  EXPECT_EQ(alone->plans[0].perplexity, beside->plans[0].perplexity);
  EXPECT_EQ(alone->plans[1].kl_mean, beside->plans[3].kl_mean);
}

TEST_F(WindowEvaluator, ScoresTheSecondHalfAfterAPrompt) {
  WindowEvalOptions options;
  options.prompt_half = true;
  const auto half = Evaluate(Windows(2), {"f16", "q4_0,exact=0"}, 2, options);
  const auto whole = Evaluate(Windows(2), {"q4_0,exact=0"});
  ASSERT_TRUE(half.ok() && whole.ok());
  EXPECT_TRUE(half->prompt_half);
  EXPECT_FALSE(whole->prompt_half);
  EXPECT_EQ(half->tokens, 2 * (kCtx / 2));
  EXPECT_EQ(half->plans[1].kl_mean, 0.0);
  EXPECT_GT(half->plans[2].kl_mean, 0.0);
  EXPECT_NE(half->plans[0].perplexity, whole->plans[0].perplexity);
}

TEST_F(WindowEvaluator, PartsOfAWindowTellWhereTheLossLies) {
  const auto result = Evaluate(Windows(2), {"q4_0,exact=64"});
  ASSERT_TRUE(result.ok());
  const PlanQuality& plan = result->plans[1];
  ASSERT_EQ(plan.kl_by_position.size(), static_cast<size_t>(kPositionParts));
  double sum = 0;
  int64_t next = 0;
  for (const PositionLoss& part : plan.kl_by_position) {
    EXPECT_EQ(part.begin, next);
    next = part.end;
    sum += part.kl_mean * static_cast<double>(std::min<int64_t>(part.end, kCtx - 1) - part.begin);
    if (part.end <= 64) {  // only f16 rows so far
      EXPECT_EQ(part.kl_mean, 0.0) << part.begin;
    }
  }
  EXPECT_EQ(next, kCtx);
  EXPECT_GT(plan.kl_by_position.back().kl_mean, 0.0);
  EXPECT_NEAR(sum / (kCtx - 1), plan.kl_mean, 1e-9 + 1e-6 * plan.kl_mean);
}

TEST_F(WindowEvaluator, PlansThatEvictOrFoldNeedThePromptsEnd) {
  EXPECT_TRUE(NeedsPromptEnd(*ParsePlan("evict=h2o")));
  EXPECT_TRUE(NeedsPromptEnd(*ParsePlan("0-1: f16; 2-: q4_0,fold=x.bin")));
  EXPECT_FALSE(NeedsPromptEnd(*ParsePlan("q4_0,window=128")));
  EXPECT_FALSE(NeedsPromptEnd(Plan()));
}

TEST_F(WindowEvaluator, WindowsOfTwoTokensWork) {
  const auto result = Evaluate(Windows(5, 2), {"q8_0"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->tokens, 5);
  EXPECT_TRUE(std::isfinite(result->plans[1].perplexity));
}

TEST_F(WindowEvaluator, StopsWithFiguresOfWhatAllPlansHaveRead) {
  const auto windows = Windows(2);
  int64_t calls = 0;
  int64_t total = 0;
  const auto stopped =
      Evaluate(windows, {"q8_0", "q4_0,exact=0"}, 2, {}, [&](const EvalProgress& progress) {
        total = progress.total_tokens;
        return ++calls < 5;  // in the second piece, after two of three plans
      });
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->tokens, 64);
  EXPECT_EQ(total, 2 * kCtx * 3);
  for (const PlanQuality& plan : stopped->plans) {
    EXPECT_TRUE(std::isfinite(plan.perplexity));
    EXPECT_TRUE(std::isfinite(plan.bytes_per_token));
  }

  int64_t done = 0;
  const auto whole = Evaluate(windows, {"q8_0"}, 2, {}, [&](const EvalProgress& progress) {
    EXPECT_GT(progress.done_tokens, done);
    done = progress.done_tokens;
    return done < progress.total_tokens;  // too late: everything has been read
  });
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->stopped);
  EXPECT_EQ(whole->tokens, 2 * (kCtx - 1));
}

TEST_F(WindowEvaluator, RefusesWhatItCannotRun) {
  const auto refused = Evaluate(Windows(1), {"q8_0", "fold=a.bin"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("plan \"fold=a.bin\":"), std::string::npos)
      << refused.status().message();
  EXPECT_FALSE(Evaluate({}, {}).ok());
  const auto outside = Evaluate({{1, 2, 9999}}, {});
  EXPECT_EQ(outside.status().message(),
            "window 0: token 9999 is not in the model's vocabulary of 258");
}

TEST_F(WindowEvaluator, RestIsBetweenTheHalves) {
  const std::vector<std::string> plans = {"q8_0,exact=0", "q8_0,idle=t2,exact=0"};
  const auto windows = Windows(2, 256);
  const auto awake = Evaluate(windows, plans, 2, {.prompt_half = true});
  const auto rested = Evaluate(windows, plans, 2, {.rest = true});
  ASSERT_TRUE(awake.ok() && rested.ok());
  EXPECT_TRUE(rested->prompt_half);
  EXPECT_EQ(awake->plans[1].kl_mean, awake->plans[2].kl_mean);
  EXPECT_EQ(rested->plans[1].kl_mean, awake->plans[1].kl_mean);
  EXPECT_GT(rested->plans[2].kl_mean, 2 * awake->plans[2].kl_mean);
  EXPECT_LT(rested->plans[2].bytes_per_token, awake->plans[2].bytes_per_token);
}

}  // namespace window_evaluator_test
}  // namespace varve
