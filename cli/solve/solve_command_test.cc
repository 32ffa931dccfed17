// `varve solve` on the embedded model: from the text to a plan that --kv takes, and what is
// refused.

#include "cli/solve/solve_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cli/report/output.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace solve_command_test {

class SolveCommandSlow : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.File(name); }
  nlohmann::json ReadJson(const std::string& name) const {
    std::stringstream content;
    content << std::ifstream(Path(name)).rdbuf();
    return nlohmann::json::parse(content.str(), nullptr, false);
  }
  SolveCommandOptions Quick() const {
    SolveCommandOptions options;
    options.rungs = {"f16", "q8_0", "q4_0r"};
    options.ctx = 1024;
    options.window = 320;
    options.windows = 1;
    options.tail = 32;
    return options;
  }
  static void ExpectRefused(const Status& status, const std::string& message) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }

  TempFolder folder_;
};

TEST_F(SolveCommandSlow, WritesAPlanThatKvTakesAndIsNotAboveTheBestPair) {
  SolveCommandOptions options = Quick();
  options.ratios = {2.5};
  options.json = Path("out.json");
  options.output = Path("plan.json");
  ::testing::internal::CaptureStdout();
  const Status status = SolvePlans(options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  const Result<Plan> plan = ReadPlanArgument("@" + Path("plan.json"));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_NE(text.find("ratio 2.5: " + PrintPlan(*plan)), std::string::npos) << text;

  const nlohmann::json rows = ReadJson("out.json")["rows"];
  ASSERT_EQ(rows.size(), 2u + 3 + 8);  // solved and uniform, rungs, layers
  EXPECT_EQ(rows[0]["role"], "solved");
  EXPECT_EQ(rows[0]["plan"], PrintPlan(*plan));
  EXPECT_GE(rows[0]["ratio"], 2.5);
  EXPECT_EQ(rows[1]["role"], "uniform");
  EXPECT_GE(rows[1]["ratio"], rows[0]["ratio"]);
  EXPECT_LE(rows[0]["solve_kl"], rows[1]["solve_kl"]);
  for (const char* key :
       {"expected_kl", "kl_mean", "kl_sem", "top1", "dlnppl", "bytes_per_token"}) {
    EXPECT_TRUE(rows[0][key].is_number()) << key;
  }
  EXPECT_NE(rows[0]["kl_mean"], rows[0]["solve_kl"]);  // other text
}

TEST_F(SolveCommandSlow, RefusesARatioThatCannotBeAndNamesTheLimit) {
  SolveCommandOptions options = Quick();
  options.ratios = {9};
  ExpectRefused(SolvePlans(options), "ratio 9");
  ExpectRefused(SolvePlans(options), "a ratio of 3.4");
}

TEST(SolveCommand, RefusesWhatDoesNotGoTogether) {
  SolveCommandOptions options;
  EXPECT_NE(SolvePlans(options).message().find("--ratio, --max-kl or --bytes-per-token"),
            std::string::npos);
  options.ratios = {3, 4};
  options.output = "plan.json";
  EXPECT_NE(SolvePlans(options).message().find("2 were asked for"), std::string::npos);
  options.output.clear();
  options.windows = 1000;
  EXPECT_NE(SolvePlans(options).message().find("1000 windows of 1024 tokens"), std::string::npos);
  options.windows = 1;
  options.rungs = {"f16", "q9_0"};
  EXPECT_NE(SolvePlans(options).message().find("unknown rung \"q9_0\""), std::string::npos);
}

TEST(SolveCommand, CandidatesNeedNoCodebookAndCostLessThanF16) {
  const auto names =
      CandidateRungs({.num_layers = 1, .num_kv_heads = 1, .key_dim = 128, .value_dim = 128});
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_TRUE(has("f16") && has("q8_0") && has("q4_0r"));
  EXPECT_FALSE(has("f32") || has("bf16") || has("pq4"));
  // Blocks are of 32 values.
  const auto odd =
      CandidateRungs({.num_layers = 1, .num_kv_heads = 1, .key_dim = 80, .value_dim = 80});
  EXPECT_EQ(std::find(odd.begin(), odd.end(), "q8_0"), odd.end());
}

}  // namespace solve_command_test
}  // namespace varve::cli
