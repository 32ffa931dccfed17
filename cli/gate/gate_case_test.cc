#include "cli/gate/gate_case.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace varve::cli {
namespace gate_case_test {

constexpr const char* kGood =
    R"({"name": "a", "purpose": "b", "plan": "q8_0", "buckets": [512, 128],
        "gates": [{"figure": "kl_mean", "max": {"big": 0.5, "*": 1}},
                  {"figure": "lossy_ratio", "min": 3, "bucket": "512"}],
        "metrics": ["keep_ratio"]})";

void ExpectRefusedCase(const std::string& text, const std::string& message) {
  const Result<GateCase> result = ParseGateCase({"x.json", text});
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_NE(result.status().message().find("case \"x.json\""), std::string::npos);
  EXPECT_NE(result.status().message().find(message), std::string::npos)
      << result.status().message();
}

TEST(GateCase, IsReadFromJson) {
  const Result<GateCase> result = ParseGateCase({"x.json", kGood});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->name, "a");
  EXPECT_EQ(result->buckets, (std::vector<int64_t>{128, 512}));
  EXPECT_TRUE(result->Wants("512"));
  EXPECT_FALSE(result->Wants("2048"));
  ASSERT_EQ(result->gates.size(), 2u);
  EXPECT_EQ(result->gates[0].For("big"), 0.5);
  EXPECT_EQ(result->gates[0].For("small"), 1.0);
  EXPECT_EQ(result->gates[1].op, GateOp::kMin);
  EXPECT_EQ(result->metrics, (std::vector<std::string>{"keep_ratio"}));
}

TEST(GateCase, TakesAPlanOfTheOriginalsKeys) {
  const Result<GateCase> result =
      ParseGateCase({"x.json", R"({"name": "a", "purpose": "b", "buckets": [128],
                     "plan": {"kv_h2o_enable": true, "kv_h2o_sink_tokens": 16}})"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->plan.rules.at(0).evict, "h2o");
}

TEST(GateCase, ALimitForOtherModelsAloneIsNone) {
  GateLimit limit;
  limit.by_model = {{"big", 1}};
  EXPECT_EQ(limit.For("small"), std::nullopt);
}

TEST(GateCase, SaysWhatIsWrongAndWhere) {
  ExpectRefusedCase("[]", "is no JSON object");
  ExpectRefusedCase(R"({"name": "a"})", "\"purpose\" must be a text");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "colour": 1})", "unknown key \"colour\"");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "q9_0", "buckets": [1]})",
                    "unknown rung \"q9_0\"");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": 3, "buckets": [1]})", "\"plan\"");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "f16", "buckets": []})",
                    "\"buckets\" must not be empty");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "f16", "buckets": [0]})",
                    "bucket 0: not in 1");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "f16", "buckets": [1],
                        "gates": [{"figure": "x"}]})",
                    "gate \"x\" has 0 limits");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "f16", "buckets": [1],
                        "gates": [{"figure": "x", "min": 1, "max": 2}]})",
                    "has 2 limits");
  ExpectRefusedCase(R"({"name": "a", "purpose": "b", "plan": "f16", "buckets": [1],
                        "gates": [{"figure": "x", "min": "1"}]})",
                    "a limit must be a number");
}

TEST(GateCase, TheShippedOnesAreThoseOfTheSpecificationAndOnePerFamily) {
  const Result<std::vector<GateCase>> cases = LoadGateCases("", {});
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  std::vector<std::string> names;
  for (const GateCase& gate_case : *cases) names.push_back(gate_case.name);
  EXPECT_EQ(names, (std::vector<std::string>{"runtime_baseline", "runtime_probe", "runtime_full",
                                             "runtime_store", "llm_demo_full", "llm_demo_store",
                                             "q8_0", "q4_0r", "t4", "pq4", "demote", "fold"}));
}

// The thresholds of the original are the minimum: nobody lowers them by accident.
TEST(GateCase, TheShippedOnesKeepTheOriginalsThresholds) {
  const Result<std::vector<GateCase>> cases = LoadGateCases(
      "", {"runtime_probe", "runtime_full", "runtime_store", "llm_demo_full", "llm_demo_store"});
  ASSERT_TRUE(cases.ok());
  for (const GateCase& gate_case : *cases) {
    const auto limit = [&](const char* figure) {
      double loosest = 0;
      bool found = false;
      for (const GateLimit& gate : gate_case.gates) {
        if (gate.figure != figure) continue;
        // The original asked for no ratio on prompts of 512 tokens; ours is lower there.
        if (gate.figure == "lossless_front_ratio" && gate.bucket == "512") continue;
        const double value = *gate.For("any");
        const bool is_max = gate.op == GateOp::kMax;
        loosest = !found ? value : is_max ? std::max(loosest, value) : std::min(loosest, value);
        found = true;
      }
      EXPECT_TRUE(found) << gate_case.name << " " << figure;
      return loosest;
    };
    const bool is_demo = gate_case.name.starts_with("llm_demo");
    EXPECT_GE(limit("lossless_front_ratio"), 1.3) << gate_case.name;
    EXPECT_LE(limit("decode_drop_ratio"), is_demo ? 0.08 : 0.05) << gate_case.name;
    EXPECT_LE(limit("lossless_queue_depth_peak"), 8) << gate_case.name;
    EXPECT_EQ(limit("lossless_fallback_count"), 0) << gate_case.name;
    for (const GateLimit& gate : gate_case.gates) {
      const bool is_long = gate.figure == "lossy_ratio" && gate.bucket == "2048";
      if (is_long) {
        EXPECT_GE(*gate.For("any"), 3.0) << gate_case.name;
      }
    }
  }
}

TEST(GateCase, ANameThatIsNoCaseIsRefused) {
  const Result<std::vector<GateCase>> cases = LoadGateCases("", {"nonsense"});
  ASSERT_FALSE(cases.ok());
  EXPECT_NE(cases.status().message().find("--case nonsense"), std::string::npos);
}

}  // namespace gate_case_test
}  // namespace varve::cli
