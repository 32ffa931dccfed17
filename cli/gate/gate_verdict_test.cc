#include "cli/gate/gate_verdict.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace gate_verdict_test {

// A prompt on which everything is there and in order.
PromptFigures GoodPrompt(const std::string& bucket) {
  PromptFigures prompt;
  prompt.prompt = "story";
  prompt.bucket = bucket;
  for (const std::string& name : RequiredMetrics()) prompt.figures[name] = 0;
  prompt.figures["keep_ratio"] = 0.3;
  prompt.figures["lossy_ratio"] = 3.4;
  prompt.figures["demoted_pages"] = 0;
  prompt.blocks.assign(8, {1000, 1000, 1000});
  return prompt;
}

GateLimit Limit(const std::string& figure, GateOp op, double value, std::string bucket = "") {
  GateLimit limit;
  limit.figure = figure;
  limit.op = op;
  limit.by_model = {{"*", value}};
  limit.bucket = std::move(bucket);
  return limit;
}

CaseVerdict JudgeOne(const GateLimit& limit, const PromptFigures& prompt) {
  GateCase gate_case;
  gate_case.gates = {limit};
  CaseFigures figures;
  figures.prompts = {prompt};
  return JudgeCase(gate_case, figures, "any");
}

TEST(GateVerdict, WhatHoldsPasses) {
  const CaseVerdict verdict = JudgeOne(Limit("lossy_ratio", GateOp::kMin, 3), GoodPrompt("2048"));
  EXPECT_EQ(verdict.status, GateStatus::kPassed) << verdict.reason;
  EXPECT_EQ(verdict.gates.size(), 3u);  // consistency, metrics, and the gate
}

TEST(GateVerdict, ABrokenThresholdFailsAndSaysWhichAndWhere) {
  const CaseVerdict verdict = JudgeOne(Limit("lossy_ratio", GateOp::kMin, 3.5), GoodPrompt("2048"));
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_EQ(verdict.reason, "2048 tokens: lossy_ratio 3.4 is not >= 3.5 (prompt story)");
}

TEST(GateVerdict, TheWorstPromptOfABucketDecides) {
  GateCase gate_case;
  gate_case.gates = {Limit("lossy_ratio", GateOp::kMin, 3)};
  CaseFigures figures;
  figures.prompts = {GoodPrompt("2048"), GoodPrompt("2048"), GoodPrompt("512")};
  figures.prompts[1].figures["lossy_ratio"] = 2.5;
  figures.prompts[1].prompt = "other";
  const CaseVerdict verdict = JudgeCase(gate_case, figures, "any");
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_NE(verdict.reason.find("2.5"), std::string::npos);
  EXPECT_NE(verdict.reason.find("other"), std::string::npos);
}

TEST(GateVerdict, AMissingMetricFailsByName) {
  PromptFigures prompt = GoodPrompt("2048");
  prompt.figures.erase("lossless_queue_depth_peak");
  const CaseVerdict verdict = JudgeOne(Limit("lossy_ratio", GateOp::kMin, 3), prompt);
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_NE(verdict.reason.find("lossless_queue_depth_peak"), std::string::npos);
  const CaseVerdict other = JudgeOne(Limit("nonsense", GateOp::kMin, 3), GoodPrompt("2048"));
  EXPECT_EQ(other.status, GateStatus::kFailed);
  EXPECT_NE(other.reason.find("metric nonsense is missing"), std::string::npos);
}

TEST(GateVerdict, AShortPromptMayHaveRatioOneAndSaysWhy) {
  PromptFigures prompt = GoodPrompt("128");
  prompt.figures["lossy_ratio"] = 0.9;
  prompt.figures["keep_ratio"] = 1;
  prompt.policy_idle = "the policy acts from 384 tokens on";
  const GateLimit limit = Limit("lossy_ratio", GateOp::kMin, 3);
  const CaseVerdict verdict = JudgeOne(limit, prompt);
  EXPECT_EQ(verdict.status, GateStatus::kPassed) << verdict.reason;
  EXPECT_EQ(verdict.gates.back().value, 1);
  EXPECT_EQ(verdict.gates.back().reason, prompt.policy_idle);
  // If the policy has dropped something all the same, the limit holds.
  prompt.figures["keep_ratio"] = 0.8;
  EXPECT_EQ(JudgeOne(limit, prompt).status, GateStatus::kFailed);
}

TEST(GateVerdict, ASlowPlanFailsWithBothSpeeds) {
  PromptFigures prompt = GoodPrompt("512");
  prompt.blocks.assign(8, {1000, 1500, 1000});
  const CaseVerdict verdict = JudgeOne(Limit("decode_drop_ratio", GateOp::kMax, 0.05), prompt);
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_NE(verdict.reason.find("33.3 % slower"), std::string::npos) << verdict.reason;
}

TEST(GateVerdict, SpeedWithinTheNoiseIsUndecidedAndDoesNotFail) {
  PromptFigures prompt = GoodPrompt("512");
  prompt.blocks.assign(8, {1000, 1060, 1100});
  const CaseVerdict verdict = JudgeOne(Limit("decode_drop_ratio", GateOp::kMax, 0.05), prompt);
  EXPECT_EQ(verdict.status, GateStatus::kUndecided);
  EXPECT_NE(verdict.reason.find("within the noise"), std::string::npos) << verdict.reason;
}

TEST(GateVerdict, SpeedIsJudgedPerBucketAndOverAll) {
  GateCase gate_case;
  gate_case.gates = {Limit("decode_drop_ratio", GateOp::kMax, 0.08)};
  CaseFigures figures;
  figures.prompts = {GoodPrompt("128"), GoodPrompt("512")};
  const CaseVerdict verdict = JudgeCase(gate_case, figures, "any");
  std::vector<std::string> buckets;
  for (const GateResult& gate : verdict.gates) {
    if (gate.gate == "decode_drop_ratio") buckets.push_back(gate.bucket);
  }
  EXPECT_EQ(buckets, (std::vector<std::string>{"128", "512", "all"}));
}

TEST(GateVerdict, APlanThatEndsInAnErrorFailsWithIt) {
  PromptFigures prompt = GoodPrompt("512");
  prompt.figures.clear();
  prompt.status = Status(StatusCode::kDataLoss, "layer 3: checksum");
  const CaseVerdict verdict = JudgeOne(Limit("lossy_ratio", GateOp::kMin, 3), prompt);
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_NE(verdict.reason.find("layer 3: checksum"), std::string::npos);
}

TEST(GateVerdict, QualityHasOneFigureForAllBuckets) {
  GateCase gate_case;
  gate_case.gates = {Limit("kl_mean", GateOp::kMax, 0.01)};
  CaseFigures figures;
  figures.prompts = {GoodPrompt("128")};
  EXPECT_EQ(JudgeCase(gate_case, figures, "any").gates.back().status, GateStatus::kSkipped);
  figures.quality = GateQuality{{"kl_mean", 0.02}};
  const CaseVerdict verdict = JudgeCase(gate_case, figures, "any");
  EXPECT_EQ(verdict.status, GateStatus::kFailed);
  EXPECT_EQ(verdict.reason, "kl_mean 0.02 is not <= 0.01");
  figures.quality = GateQuality{};
  EXPECT_NE(JudgeCase(gate_case, figures, "any").reason.find("missing"), std::string::npos);
}

TEST(GateVerdict, ALimitForAnotherBucketOrModelIsSkipped) {
  const CaseVerdict verdict =
      JudgeOne(Limit("lossy_ratio", GateOp::kMin, 9, "2048"), GoodPrompt("512"));
  EXPECT_EQ(verdict.status, GateStatus::kPassed);
  EXPECT_EQ(verdict.gates.back().status, GateStatus::kSkipped);
}

}  // namespace gate_verdict_test
}  // namespace varve::cli
