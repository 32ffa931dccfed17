#include "cli/gate/gate_summary.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace gate_summary_test {

using Json = nlohmann::ordered_json;

GateReport SmallReport() {
  GateReport report;
  report.head = {{"command", "varve gate"},   {"version", "0"},
                 {"date", "2026-01-01"},      {"seconds", 1.5},
                 {"machine", Json::object()}, {"model", Json::object()},
                 {"settings", Json::object()}};
  GatePrompt prompt;
  prompt.name = "story";
  prompt.bucket = "128";
  report.prompts = {prompt};
  PromptFigures figures;
  figures.prompt = "story";
  figures.bucket = "128";
  figures.prompt_tokens = 128;
  figures.end_tokens = 145;
  figures.blocks = {{1000, 2000, 1000}};
  figures.figures = {{"cache_bytes", 290}, {"baseline_bytes", 580}, {"cache_ratio", 2}};
  figures.memory = {{"series", Json::array()}, {"samples", Json::array()}};
  figures.spans = {{"end_tokens", 145}, {"page_tokens", 64}, {"layers", Json::array()}};
  CaseOutcome outcome;
  outcome.gate_case.name = "half";
  outcome.figures.prompts = {figures};
  outcome.figures.quality = GateQuality{{"kl_mean", 0.25}, {"recall_f16_hits", 9}};
  report.runs.emplace_back();
  report.runs.back().cases = {outcome};
  return report;
}

TEST(GateSummary, HasTheFieldsOfItsSchema) {
  const Json summary = MakeGateSummary(SmallReport());
  const Status status = CheckGateSummary(summary);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(summary["overall_pass"], true);
  EXPECT_EQ(summary["counts"]["passed"], 1);
  EXPECT_EQ(summary["frontier"][0]["bytes_per_token"], 4.0);
  EXPECT_EQ(summary["frontier"][1]["bytes_per_token"], 2.0);
  EXPECT_EQ(summary["frontier"][1]["kl_mean"], 0.25);
  EXPECT_TRUE(summary["frontier"][1]["top1"].is_null());
  EXPECT_EQ(summary["speed"][0]["tokens_per_s"], 16000.0);
  EXPECT_EQ(summary["speed"][1]["speed_ratio"], 0.5);
}

TEST(GateSummary, ASchemaThatIsNotKeptIsNamed) {
  Json summary = MakeGateSummary(SmallReport());
  summary["cases"][0]["buckets"][0]["drop"] = "much";
  EXPECT_NE(CheckGateSummary(summary).message().find("case half, buckets[0].drop"),
            std::string::npos);
  summary.erase("overall_pass");
  EXPECT_NE(CheckGateSummary(summary).message().find("overall_pass"), std::string::npos);
}

TEST(GateSummary, OneFailureOrOneThatIsLeftIsNoPass) {
  GateReport report = SmallReport();
  for (const GateStatus status : {GateStatus::kFailed, GateStatus::kNotRun, GateStatus::kSkipped}) {
    report.runs[0].cases[0].verdict.status = status;
    EXPECT_FALSE(report.runs[0].passed()) << GateStatusName(status);
  }
  report.runs[0].cases[0].verdict.status = GateStatus::kUndecided;
  EXPECT_TRUE(report.runs[0].passed());
  report.runs.push_back(report.runs[0]);
  report.runs[0].cases[0].verdict.status = GateStatus::kFailed;
  EXPECT_EQ(MakeGateSummary(report)["overall_pass"], false);
  EXPECT_EQ(MakeGateSummary(report)["runs"][0]["failed"].size(), 1u);
}

}  // namespace gate_summary_test
}  // namespace varve::cli
