#include "runtime/solve/plan_solver.h"

#include <gtest/gtest.h>

#include "runtime/embedded_model.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/model/open_model.h"

namespace varve {
namespace plan_solver_test {

// On the embedded model: the tiny one has two layers, between which there is not much to choose.
class PlanSolverSlow : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 512;

  PlanSolverSlow() {
    const auto file = GgufFile::FromMemory(EmbeddedModel(), "embedded");
    EXPECT_TRUE(file.ok()) << file.status().message();
    model_ = *LoadDecoderModel(*file);
    auto tokenizer = Tokenizer::Create(**file);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
    EncodeOptions encode;
    encode.add_special = false;
    windows_ = *CutWindows(tokenizer_->Encode(EmbeddedEvalText().substr(0, 10000), encode), kTokens,
                           tokenizer_->adds_bos() ? tokenizer_->bos() : -1, 1);
    options_.rungs = {"f16", "q8_0", "q4_0", "q4_0r"};
    options_.num_tokens = kTokens;
    options_.tail_tokens = 48;
    options_.exact = {{64, 0}, {0, 64}};
  }

  Result<std::unique_ptr<PlanSolver>> Make(const SolveProgressFunction& progress = {}) {
    return PlanSolver::Make(model_, *tokenizer_, windows_, options_, *executor_, progress);
  }
  // Mean KL of each plan on the windows.
  std::vector<double> Kl(const std::vector<Plan>& plans) {
    std::vector<EvalPlan> eval_plans;
    for (const Plan& plan : plans) eval_plans.push_back({PrintPlan(plan), plan});
    const auto result =
        EvaluateWindows(model_, *tokenizer_, windows_, eval_plans, WindowEvalOptions(), *executor_);
    EXPECT_TRUE(result.ok()) << result.status().message();
    std::vector<double> losses;
    for (size_t i = 1; i < result->plans.size(); ++i) losses.push_back(result->plans[i].kl_mean);
    return losses;
  }

  std::shared_ptr<const DecoderModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::vector<int32_t>> windows_;
  std::unique_ptr<Executor> executor_ = MakeThreadPool(0);
  SolveOptions options_;
};

TEST_F(PlanSolverSlow, IsNeverAboveAnyPairOfRungsForAllLayersWithinTheBytes) {
  const auto solver = Make();
  ASSERT_TRUE(solver.ok()) << solver.status().message();
  const PlanSpace& space = (*solver)->space();
  const uint64_t bytes = space.f16_bytes() * 10 / 26;
  const auto solved = (*solver)->SolveBytes(bytes);
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_LE(solved->plan.bytes, bytes);
  ASSERT_TRUE(solved->uniform.has_value());
  EXPECT_LE(solved->uniform->bytes, bytes);
  EXPECT_TRUE(solved->uniform->exact == solved->plan.exact);
  EXPECT_GT(solved->expected_kl, 0.3 * solved->plan.kl);
  EXPECT_LT(solved->expected_kl, 3 * solved->plan.kl);

  std::vector<Plan> plans = {solved->plan.plan};
  const auto pair_bytes = space.LayerBytes(solved->plan.exact);
  ASSERT_TRUE(pair_bytes.ok());
  for (size_t pair = 0; pair < space.num_pairs(); ++pair) {
    if ((*pair_bytes)[pair] * static_cast<uint64_t>(space.num_layers()) > bytes) continue;
    plans.push_back(*space.UniformPlan(pair, solved->plan.exact));
  }
  const std::vector<double> losses = Kl(plans);
  EXPECT_EQ(losses[0], solved->plan.kl);
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LE(losses[0], losses[i]) << PrintPlan(plans[i]);
}

TEST_F(PlanSolverSlow, MeetsALossAndNeedsMoreBytesForALowerOne) {
  options_.rungs = {"f16", "q8_0", "q4_0r"};
  const auto solver = Make();
  ASSERT_TRUE(solver.ok()) << solver.status().message();
  uint64_t bytes = 0;
  for (const double max_kl : {0.0005, 1e-7}) {
    const auto solved = (*solver)->SolveLoss(max_kl);
    ASSERT_TRUE(solved.ok()) << solved.status().message();
    EXPECT_LE(solved->plan.kl, max_kl);
    EXPECT_EQ(solved->plan.kl, Kl({solved->plan.plan})[0]);
    EXPECT_GT(solved->plan.bytes, bytes);
    bytes = solved->plan.bytes;
  }
}

TEST_F(PlanSolverSlow, SaysWhatTheSmallestIsWhereNothingFits) {
  const auto solver = Make();
  ASSERT_TRUE(solver.ok()) << solver.status().message();
  const auto solved = (*solver)->SolveBytes((*solver)->smallest_bytes() - 1);
  ASSERT_EQ(solved.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(solved.status().message().find(std::to_string((*solver)->smallest_bytes())),
            std::string::npos)
      << solved.status().message();
  EXPECT_NE(solved.status().message().find("a ratio of 2.66"), std::string::npos)
      << solved.status().message();
}

TEST_F(PlanSolverSlow, StopsWhenItIsToldTo) {
  int calls = 0;
  const auto solver = Make([&](const SolveProgress& progress) {
    EXPECT_GT(progress.done_tokens, 0);
    EXPECT_LT(progress.done_tokens, progress.total_tokens);
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(solver.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(solver.status().message(), "stopped");
}

TEST_F(PlanSolverSlow, RefusesCandidatesThatCannotBe) {
  options_.rungs = {"q8_0", "q4_0"};
  EXPECT_NE(Make().status().message().find("f16"), std::string::npos);
  options_.rungs = {"f16", "q9_0"};
  EXPECT_NE(Make().status().message().find("q9_0"), std::string::npos);
}

}  // namespace plan_solver_test
}  // namespace varve
