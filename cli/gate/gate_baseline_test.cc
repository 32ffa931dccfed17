#include "cli/gate/gate_baseline.h"

#include <gtest/gtest.h>

#include <fstream>

#include "cli/gate/gate_summary.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace gate_baseline_test {

using Json = nlohmann::ordered_json;

Json SummaryOf(double tokens_per_s) {
  return {{"machine", {{"fingerprint", "m"}}},
          {"model", {{"fingerprint", "o"}}},
          {"speed",
           {{{"case", kBaselineName}, {"bucket", "512"}, {"tokens_per_s", tokens_per_s}},
            {{"case", "q8_0"}, {"bucket", "512"}, {"tokens_per_s", 1.0}}}}};
}

const GatePlace kHere = {"m", "o"};

TEST(GateBaseline, TheMedianOfTheLastRunsHere) {
  const TempFolder folder;
  const std::string path = folder.File("history.jsonl");
  for (const double speed : {1000.0, 10.0, 12.0}) {
    ASSERT_TRUE(AppendHistory(path, {"other", "o"}, SummaryOf(77)).ok());
    ASSERT_TRUE(AppendHistory(path, kHere, SummaryOf(speed)).ok());
  }
  ASSERT_TRUE(AppendHistory(path, kHere, SummaryOf(11)).ok());
  const Result<GateBaseline> baseline = ReadHistory(path, kHere, 3);
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  ASSERT_EQ(baseline->speeds.size(), 1u);
  EXPECT_EQ(baseline->speeds.at("512").tokens_per_s, 11);
  EXPECT_NEAR(baseline->speeds.at("512").noise, 2.0 / 11, 1e-12);
}

TEST(GateBaseline, AShortHistoryIsNone) {
  const TempFolder folder;
  const Result<GateBaseline> none = ReadHistory(folder.File("history.jsonl"), kHere, 7);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->speeds.empty());
  EXPECT_NE(none->said.find("has 0 of 3 runs"), std::string::npos) << none->said;
}

TEST(GateBaseline, ABrokenLineIsNamed) {
  const TempFolder folder;
  std::ofstream(folder.File("history.jsonl")) << "{}\nnonsense\n";
  const Result<GateBaseline> broken = ReadHistory(folder.File("history.jsonl"), kHere, 7);
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("line 2"), std::string::npos);
}

TEST(GateBaseline, AFileOfAnotherMachineOrModelIsRefused) {
  const TempFolder folder;
  const std::string path = folder.File("summary.json");
  std::ofstream(path) << SummaryOf(5).dump();
  const Result<GateBaseline> good = ReadBaselineFile(path, kHere);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->speeds.at("512").tokens_per_s, 5);
  EXPECT_FALSE(ReadBaselineFile(path, {"x", "o"}).ok());
  EXPECT_FALSE(ReadBaselineFile(path, {"m", "x"}).ok());
  std::ofstream(path) << "[]";
  EXPECT_FALSE(ReadBaselineFile(path, kHere).ok());
}

}  // namespace gate_baseline_test
}  // namespace varve::cli
