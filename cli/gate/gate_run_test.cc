// `varve gate` on a tiny model: the whole way from cases to the summary, and what each fault gives.

#include "cli/gate/gate_run.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include <unistd.h>

#include "cli/gate/gate_summary.h"
#include "cli/interrupt.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace gate_run_test {

using Json = nlohmann::ordered_json;

constexpr const char* kStorePlan = "pack=store,page=16,hot=16/32,bootstrap=16,step=32";

class GateRun : public ::testing::Test {
 protected:
  GateRun() {
    TinyModel().Write(folder_.File("tiny.gguf"));
    std::filesystem::create_directories(folder_.File("cases"));
    options_.model = folder_.File("tiny.gguf");
    options_.cases = folder_.File("cases");
    options_.output = folder_.File("out");
    options_.threads = 2;
    options_.quick = true;
    options_.quality = false;
    options_.retries = 0;
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.File(name)) << text;
  }
  void WriteCase(const std::string& name, const std::string& plan, const std::string& gates,
                 const std::string& metrics = "") const {
    Write("cases/" + name + ".json", R"({"name": ")" + name + R"(", "purpose": "test", "plan": ")" +
                                         plan + R"(", "buckets": [128], "gates": [)" + gates +
                                         R"(], "metrics": [)" + metrics + "]}");
  }
  Result<GateVerdict> Run() const {
    ::testing::internal::CaptureStdout();
    Result<GateVerdict> verdict = RunGate(options_);
    printed_ = ::testing::internal::GetCapturedStdout();
    return verdict;
  }
  Json Summary() const {
    std::stringstream content;
    content << std::ifstream(folder_.File("out/summary.json")).rdbuf();
    Json summary = Json::parse(content.str(), nullptr, false);
    EXPECT_TRUE(CheckGateSummary(summary).ok()) << CheckGateSummary(summary).message();
    return summary;
  }
  // One case that must fail, with this in its reason.
  void ExpectFails(const std::string& reason) const {
    const Result<GateVerdict> verdict = Run();
    ASSERT_TRUE(verdict.ok()) << verdict.status().message();
    EXPECT_EQ(*verdict, GateVerdict::kFailed);
    const Json summary = Summary();
    EXPECT_EQ(summary["overall_pass"], false);
    EXPECT_EQ(summary["cases"][0]["status"], "failed");
    const std::string said = summary["cases"][0]["reason"];
    EXPECT_NE(said.find(reason), std::string::npos) << said;
    EXPECT_NE(printed_.find("FAILED"), std::string::npos) << printed_;
  }

  TempFolder folder_;
  GateOptions options_;
  mutable std::string printed_;
};

TEST_F(GateRun, PassesAndLeavesASummaryWithEverything) {
  WriteCase("store", kStorePlan,
            R"({"figure": "lossless_fallback_count", "max": 0},
               {"figure": "lossless_front_ratio", "above": 1})");
  const Result<GateVerdict> verdict = Run();
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  const Json summary = Summary();
  EXPECT_EQ(*verdict, GateVerdict::kPassed) << summary["cases"][0]["gates"].dump(1);
  EXPECT_EQ(summary["overall_pass"], true);
  EXPECT_EQ(summary["counts"]["passed"], 1);
  const Json& row = summary["cases"][0];
  EXPECT_GT(row["memory"]["samples"].size(), 2u);
  EXPECT_EQ(row["memory"]["samples"][0]["bytes"].size(), row["memory"]["series"].size());
  EXPECT_EQ(row["spans"]["layers"].size(), 2u);
  EXPECT_EQ(row["spans"]["layers"][0]["spans"].back()["end"], row["spans"]["end_tokens"]);
  EXPECT_GE(row["lossless"].size(), 2u);  // K and V of a layer that gains
  EXPECT_EQ(row["buckets"][0]["consistency"], true);
  EXPECT_EQ(row["metrics"]["kv_content_consistency_pass"], 1.0);
  EXPECT_EQ(summary["speed"][0]["case"], kBaselineName);
  EXPECT_TRUE(std::filesystem::exists(folder_.File("out/report.html")));
}

TEST_F(GateRun, ABrokenThresholdFails) {
  WriteCase("wrong", "q8_0", R"({"figure": "cache_ratio", "min": 100})");
  ExpectFails("cache_ratio");
}

TEST_F(GateRun, AMissingMetricFails) {
  WriteCase("wrong", "q8_0", "", R"("no_such_metric")");
  ExpectFails("missing: no_such_metric");
}

TEST_F(GateRun, ACorruptedPackedPageFailsByItsChecksum) {
  WriteCase("store", kStorePlan, "");
  options_.fault = GateFault::kCorruptPage;
  ExpectFails("layer");
  EXPECT_EQ(Summary()["cases"][0]["gates"][0]["gate"], "kv_content_consistency_pass");
}

TEST_F(GateRun, AnUnpackedPageThatIsWrittenBackWrongFailsByComparison) {
  WriteCase("full", "pack=full,page=16,hot=16/32,bootstrap=16,step=32", "");
  options_.fault = GateFault::kCorruptPage;
  ExpectFails("differs from the one without packing");
}

TEST_F(GateRun, ASlowPlanFails) {
  // Nothing is a hundred times as fast as f16.
  WriteCase("slow", "q8_0", R"({"figure": "decode_drop_ratio", "max": -99})");
  ExpectFails("slower");
}

TEST_F(GateRun, ACaseThatTheModelCannotHaveIsSkippedWithTheReason) {
  WriteCase("pq", "pq4", "");
  WriteCase("plain", "f16", "");
  const Result<GateVerdict> verdict = Run();
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  EXPECT_EQ(*verdict, GateVerdict::kPassed);
  const Json summary = Summary();
  EXPECT_EQ(summary["counts"]["skipped"], 1);
  const std::string reason = summary["cases"][1]["reason"];
  EXPECT_NE(reason.find("not for this model"), std::string::npos) << reason;
}

TEST_F(GateRun, APolicyThatHasNothingToDoSaysWhy) {
  WriteCase("h2o", "h2o,page=16,sink=16,recent=32,trigger=384",
            R"({"figure": "lossy_ratio", "min": 3})");
  ASSERT_TRUE(Run().ok());
  const Json summary = Summary();
  EXPECT_EQ(summary["overall_pass"], true) << summary["cases"][0]["reason"];
  const std::string idle = summary["cases"][0]["buckets"][0]["idle"];
  EXPECT_NE(idle.find("acts from 384 tokens on"), std::string::npos) << idle;
}

TEST_F(GateRun, OnesOwnPromptsAndConversationsAreRead) {
  WriteCase("store", kStorePlan, "");
  std::filesystem::create_directories(folder_.File("texts"));
  Write("texts/a.txt", std::string(150, 'a'));
  Write("turns.json", R"([{"name": "trip", "reply_tokens": 20,
                           "turns": ["Where does the road go?", "And behind the hill?"]}])");
  options_.prompts = folder_.File("texts");
  options_.turns = folder_.File("turns.json");
  const Result<GateVerdict> verdict = Run();
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  const Json summary = Summary();
  ASSERT_EQ(summary["prompts"].size(), 2u);
  EXPECT_EQ(summary["prompts"][0]["name"], "a.txt");
  EXPECT_EQ(summary["prompts"][0]["tokens"], 151);  // with BOS
  EXPECT_EQ(summary["prompts"][1]["bucket"], "turns");
  EXPECT_EQ(summary["prompts"][1]["turns"], 2);
  EXPECT_EQ(summary["cases"][0]["buckets"].size(), 2u);
}

TEST_F(GateRun, SeveralRunsTellTheirSpread) {
  WriteCase("q8", "q8_0", "");
  options_.runs = 2;
  ASSERT_TRUE(Run().ok());
  const Json summary = Summary();
  EXPECT_EQ(summary["runs"].size(), 2u);
  ASSERT_FALSE(summary["spread"].empty());
  EXPECT_EQ(summary["spread"][0]["runs"], 2);
}

TEST_F(GateRun, AHistoryBecomesTheBaselineAfterThreeRuns) {
  WriteCase("q8", "q8_0", "");
  options_.history = folder_.File("history.jsonl");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Summary()["settings"]["baseline"].get<std::string>().find("same run"), 0u);
  ASSERT_TRUE(Run().ok());
  const std::string said = Summary()["settings"]["baseline"];
  EXPECT_NE(said.find("3 runs"), std::string::npos) << said;
  options_.history.clear();
  options_.baseline = folder_.File("out/summary.json");
  ASSERT_TRUE(Run().ok());
  EXPECT_NE(Summary()["settings"]["baseline"].get<std::string>().find("file "), std::string::npos);
}

TEST_F(GateRun, QualityIsMeasuredAndGated) {
  WriteCase("q4", "q4_0,page=16", R"({"figure": "kl_mean", "max": 1e-12})");
  options_.quality = true;
  const Result<GateVerdict> verdict = Run();
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  EXPECT_EQ(*verdict, GateVerdict::kFailed);
  const Json summary = Summary();
  EXPECT_GT(summary["cases"][0]["quality"]["kl_mean"], 0.0);
  ASSERT_EQ(summary["frontier"].size(), 2u);
  EXPECT_EQ(summary["frontier"][0]["plan"], "f16");
}

TEST_F(GateRun, WhatCannotRunIsAnErrorBeforeAnythingIsMeasured) {
  EXPECT_FALSE(Run().ok());  // an empty folder of cases
  WriteCase("bad", "q9_0", "");
  const Result<GateVerdict> verdict = Run();
  ASSERT_FALSE(verdict.ok());
  EXPECT_NE(verdict.status().message().find("unknown rung"), std::string::npos);
}

TEST_F(GateRun, CtrlCLeavesAValidSummaryOfWhatThereIs) {
  WriteCase("a", "q8_0", "");
  WriteCase("b", "q4_0", "");
  options_.runs = 1000;
  // A signal that comes too early does nothing. Not SIG_IGN: what is ignored stays ignored.
  const auto former = std::signal(SIGINT, [](int) {});
  { const InterruptScope reset; }
  std::thread presser([] {
    while (!InterruptScope::interrupted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!InterruptScope::interrupted()) kill(getpid(), SIGINT);
    }
  });
  const Result<GateVerdict> verdict = Run();
  presser.join();
  std::signal(SIGINT, former);
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  EXPECT_EQ(*verdict, GateVerdict::kUndecided);
  const Json summary = Summary();
  EXPECT_EQ(summary["overall_pass"], false);
  EXPECT_EQ(summary["interrupted"], true);
  EXPECT_LT(summary["runs"].size(), 1000u);
}

}  // namespace gate_run_test
}  // namespace varve::cli
