#include "cli/report/compare_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/lossless/lossless_report.h"

namespace varve::cli {
namespace compare_report_test {

using Json = nlohmann::ordered_json;

ComparedPlan Plan(std::string name, std::string text, double bytes_per_token, double kl) {
  ComparedPlan plan;
  plan.plan = std::move(name);
  plan.text = std::move(text);
  plan.memory.bytes = static_cast<uint64_t>(bytes_per_token * 100);
  plan.memory.bytes_per_token = bytes_per_token;
  plan.memory.ratio = 1024 / bytes_per_token;
  plan.kl_mean = kl;
  plan.same_best = 0.975;
  return plan;
}

Comparison Example() {
  Comparison comparison;
  comparison.model = "a<b>.gguf";
  comparison.prompt = "Once & \"twice\"";
  comparison.prompt_tokens = 90;
  comparison.scored_tokens = 40;
  comparison.command = "varve run -p '<x>'";
  comparison.plans = {Plan("f16", "The sea was calm.", 1024, 0),
                      Plan("q8_0", "The sea was calm.", 544, 2e-5),
                      Plan("k=q8_0,v=q4_0", "The sea was blue.", 416, 0.013)};
  comparison.plans[2].first_difference = 3;
  return comparison;
}

TEST(CompareReport, TheDocumentHasEveryFigure) {
  const Json document = ComparisonDocument(Example());
  EXPECT_EQ(document["kind"], "compare");
  EXPECT_EQ(document["model"]["name"], "a<b>.gguf");
  EXPECT_EQ(document["command"], "varve run -p '<x>'");
  EXPECT_EQ(document["prompt"]["text"], "Once & \"twice\"");
  EXPECT_EQ(document["scored_tokens"], 40);
  ASSERT_EQ(document["plans"].size(), 3u);
  EXPECT_EQ(document["plans"][0]["role"], "baseline");
  EXPECT_EQ(document["plans"][0]["first_difference"], nullptr);
  const Json& last = document["plans"][2];
  EXPECT_EQ(last["plan"], "k=q8_0,v=q4_0");
  EXPECT_EQ(last["first_difference"], 3);
  EXPECT_EQ(last["bytes_per_token"], 416.0);
  EXPECT_EQ(last["kl_mean"], 0.013);
  EXPECT_EQ(last["top1"], 0.975);
  EXPECT_EQ(last["text"], "The sea was blue.");
  ASSERT_EQ(document["speed"].size(), 3u);
  EXPECT_EQ(document["speed"][1]["bucket"], "90");
}

// A section appears when its data is there.
TEST(CompareReport, WhatWasNotRecordedIsLeftOut) {
  Comparison comparison = Example();
  EXPECT_EQ(ComparisonDocument(comparison)["cases"][1], (Json{{"plan", "q8_0"}}));
  comparison.plans[1].spans = Json{{"end_tokens", 7}};
  const Json recorded = ComparisonDocument(comparison)["cases"][1];
  EXPECT_EQ(recorded["spans"]["end_tokens"], 7);
  EXPECT_FALSE(recorded.contains("trace"));
  EXPECT_FALSE(recorded.contains("lossless"));
}

TEST(CompareReport, PackedLayersAreThere) {
  Comparison comparison = Example();
  std::vector<LayerReport> layers(3);
  layers[1].lossless_raw_bytes[0] = 300;
  layers[1].lossless_packed_bytes[0] = 200;
  comparison.plans[1].lossless = LosslessRows(layers);
  const Json rows = ComparisonDocument(comparison)["cases"][1]["lossless"];
  EXPECT_EQ(rows, Json::parse(R"([{"layer": 1, "part": "k", "raw_bytes": 300, "packed_bytes": 200,
                                   "ratio": 1.5}])"));
}

TEST(CompareReport, CodebooksAreNamedWhereTheyAreNotCounted) {
  Comparison comparison = Example();
  EXPECT_EQ(ConstantsNote(comparison.plans), "");
  EXPECT_EQ(ComparisonDocument(comparison)["constants"], "");
  comparison.plans[1].use.codebook_bytes = 1536;
  EXPECT_NE(ConstantsNote(comparison.plans).find(comparison.plans[1].plan + " 1.50 KiB"),
            std::string::npos);
  const std::string note = ComparisonDocument(comparison)["constants"];
  EXPECT_NE(note.find("in no other figure: "), std::string::npos);
}

TEST(CompareReport, WhatWasNotMeasuredIsNullInThePage) {
  Comparison comparison = Example();
  comparison.plans[1].kl_mean = kNoFigure;
  const Json document = Json::parse(ComparisonDocument(comparison).dump());
  EXPECT_TRUE(document["plans"][1]["kl_mean"].is_null());
  EXPECT_TRUE(document["speed"][1]["speed_ratio"].is_null());
}

TEST(CompareReport, SpeedIsTheMedianOfPairs) {
  // The plan is twice as fast but for one token; f16's odd tokens take a tenth longer.
  const std::vector<double> f16 = {1.0, 1.1, 1.0, 1.1, 1.0, 1.1};
  const std::vector<double> plan = {0.5, 0.55, 0.5, 5.5, 0.5, 0.55};
  const ComparedSpeed speed = CompareSpeed(f16, plan);
  EXPECT_DOUBLE_EQ(speed.ratio, 2);
  EXPECT_DOUBLE_EQ(speed.low, 2);
  EXPECT_NEAR(speed.noise, 1 - 1 / 1.1, 1e-12);
  EXPECT_TRUE(std::isnan(CompareSpeed({}, {}).ratio));
}

TEST(CompareReport, DivergencesReadWell) {
  EXPECT_EQ(HumanDivergence(0), "0");
  EXPECT_EQ(HumanDivergence(2.34e-5), "2.3e-05");
  EXPECT_EQ(HumanDivergence(0.00123), "0.0012");
  EXPECT_EQ(HumanDivergence(0.5), "0.50");
}

}  // namespace compare_report_test
}  // namespace varve::cli
