#include "runtime/eval/recall_evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model/open_model.h"
#include "tests/byte_tokenizer.h"
#include "tests/tiny_model.h"

namespace varve {
namespace recall_evaluator_test {

class RecallEvaluator : public ::testing::Test {
 protected:
  RecallEvaluator() {
    const auto file = GgufFile::FromMemory(bytes_, "tiny");
    EXPECT_TRUE(file.ok()) << file.status().message();
    auto model = LoadDecoderModel(*file);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    RecallOptions options;
    options.ctx = 700;
    options.asked = 5;
    options.facts = 2;
    options.depths = {0.1, 0.6};
    std::string text;
    for (int i = 0; i < 100; ++i) text += "Tide " + std::to_string(i) + " came slowly in. ";
    auto prompts = MakeRecallPrompts(tokenizer_, text, options);
    EXPECT_TRUE(prompts.ok()) << prompts.status().message();
    prompts_ = std::move(*prompts);
  }

  Result<RecallResult> Evaluate(
      const std::vector<std::string>& plans, int threads = 2,
      const std::function<bool(const EvalProgress&)>& progress = {}) const {
    std::vector<EvalPlan> parsed;
    for (const std::string& plan : plans) parsed.push_back({plan, *ParsePlan(plan)});
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    return EvaluateRecall(model_, tokenizer_, prompts_, parsed, ProductPrecision::kF32, *executor,
                          progress);
  }

  // What the model continues the prompt and the question with, without forks.
  std::string Continue(const RecallPrompt& prompt, size_t question, size_t tokens) const {
    const std::unique_ptr<Executor> executor = MakeThreadPool(1);
    const auto cache = Cache::Create(model_->cache_shape(), {});
    const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
    const SequenceId sequence = *(*cache)->CreateSequence();
    std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
    std::string text;
    EXPECT_TRUE(runner->Forward(**cache, sequence, prompt.tokens, Logits::kNone, nullptr).ok());
    std::vector<int32_t> next = prompt.questions[question];
    while (text.size() < tokens) {
      EXPECT_TRUE(runner->Forward(**cache, sequence, next, Logits::kLast, logits.data()).ok());
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      if (best > 255) break;
      next = {static_cast<int32_t>(best)};
      text += static_cast<char>(best);
    }
    return text;
  }

  std::vector<std::byte> bytes_ = TinyModel().Build();
  ByteTokenizer tokenizer_;
  std::shared_ptr<const DecoderModel> model_;
  std::vector<RecallPrompt> prompts_;
};

TEST_F(RecallEvaluator, AsksEveryPlanTheSameQuestions) {
  const auto result = Evaluate({"f16", "q4_0,exact=0"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->prompts, 3);
  ASSERT_EQ(result->plans.size(), 3u);
  for (const PlanRecall& plan : result->plans) {
    ASSERT_EQ(plan.answers.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      const RecallFact& fact = prompts_[i / 2].facts[i % 2];
      EXPECT_EQ(plan.answers[i].number, fact.number);
      EXPECT_EQ(plan.answers[i].thing, fact.thing);
      EXPECT_EQ(plan.answers[i].depth_index, i % 2);
    }
  }
  // f16 beside f16 says the same; a random model finds nothing.
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result->plans[0].answers[i].generated, result->plans[1].answers[i].generated);
  }
  EXPECT_EQ(result->plans[0].hits, 0);
  EXPECT_EQ(result->plans[1].ratio, 1.0);
  EXPECT_GT(result->plans[2].ratio, 1.5);
}

TEST_F(RecallEvaluator, AnswersAreWhatTheModelSays) {
  const auto result = Evaluate({});
  ASSERT_TRUE(result.ok()) << result.status().message();
  for (size_t i = 0; i < 5; ++i) {
    const std::string& generated = result->plans[0].answers[i].generated;
    EXPECT_EQ(generated, Continue(prompts_[i / 2], i % 2, generated.size()));
  }
}

TEST_F(RecallEvaluator, ANumberThatTheModelSaysIsAHit) {
  const std::vector<std::byte> bytes = ChainModel("s 48213.").Build();  // "… is" goes on " 48213."
  const auto model = LoadDecoderModel(*GgufFile::FromMemory(bytes, "chain"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<RecallPrompt> prompts = prompts_;
  prompts[0].facts[1].number = "48213";
  prompts[1].facts[0].number = "4821";
  prompts[1].facts[1].number = "8213";
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const EvalPlan plan = {"q4_0", *ParsePlan("q4_0")};
  const auto result =
      EvaluateRecall(*model, tokenizer_, prompts, {&plan, 1}, ProductPrecision::kF32, *executor);
  ASSERT_TRUE(result.ok()) << result.status().message();
  for (const PlanRecall& recall : result->plans) {
    EXPECT_EQ(recall.hits, 1);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(recall.answers[i].hit, i == 1) << i;
    EXPECT_EQ(recall.answers[1].generated, " 48213.");
    EXPECT_EQ(recall.answers[2].generated, " 48213");
  }
}

TEST_F(RecallEvaluator, AnswersDoNotDependOnThreads) {
  const auto one = Evaluate({"q4_0r,exact=0"}, 1);
  const auto three = Evaluate({"q4_0r,exact=0"}, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  for (size_t p = 0; p < 2; ++p) {
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(one->plans[p].answers[i].generated, three->plans[p].answers[i].generated);
    }
    EXPECT_EQ(one->plans[p].bytes_per_token, three->plans[p].bytes_per_token);
  }
}

TEST_F(RecallEvaluator, StoppingDropsThePromptThatIsBeingRead) {
  const auto all = Evaluate({"q8_0"});
  const auto stopped = Evaluate({"q8_0"}, 2, [](const EvalProgress& progress) {
    EXPECT_LE(progress.done_tokens, progress.total_tokens);
    return progress.done_tokens < progress.total_tokens / 2;  // in the second of three prompts
  });
  ASSERT_TRUE(all.ok() && stopped.ok());
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->prompts, 1);
  for (size_t p = 0; p < 2; ++p) {
    ASSERT_EQ(stopped->plans[p].answers.size(), 2u);
    EXPECT_EQ(stopped->plans[p].answers[1].generated, all->plans[p].answers[1].generated);
  }
}

}  // namespace recall_evaluator_test
}  // namespace varve
