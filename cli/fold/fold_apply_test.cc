#include "cli/fold/fold_apply.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/fold/fold_command.h"
#include "cli/inspect/plan_report.h"
#include "fold/compressor_testing.h"
#include "runtime/embedded_model.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace fold_apply_test {

nlohmann::json Apply(FoldApplyOptions options) {
  const TempFolder folder;
  options.json = folder.File("out.json");
  testing::internal::CaptureStdout();
  const Status status = ApplyCompressor(options);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(status.ToString(), "ok");
  std::ifstream file(options.json);
  return nlohmann::json::parse(file)["rows"];
}

TEST(FoldApply, APromptOfTheEmbeddedModelTakesAQuarter) {
  FoldApplyOptions options;
  options.compressor = "shipped";
  options.tokens = 512;
  const nlohmann::json rows = Apply(options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["moment"], "prompt");
  EXPECT_EQ(rows[0]["rows"], 8 * 512);
  EXPECT_EQ(rows[1]["moment"], "folded");
  EXPECT_EQ(rows[1]["rows"], 8 * 128);
  EXPECT_EQ(rows[1]["fold"]["bytes_before"], 4 * rows[1]["fold"]["bytes_after"].get<uint64_t>());
  EXPECT_GT(rows[0]["cache_bytes"].get<double>(), 3.5 * rows[1]["cache_bytes"].get<double>());
}

TEST(FoldApply, TheRestOfThePlanIsApplied) {
  FoldApplyOptions options;
  options.compressor = "shipped";
  options.tokens = 512;
  options.rest = "q8_0";
  const nlohmann::json rows = Apply(options);
  EXPECT_GT(rows[0]["cache_bytes"].get<double>(), 6.5 * rows[1]["cache_bytes"].get<double>());
}

TEST(FoldApply, TheFoldedCacheCanBeSaved) {
  const TempFolder folder;
  FoldApplyOptions options;
  options.compressor = "shipped";
  options.tokens = 130;
  options.restart = true;
  options.output = folder.File("folded.varve");
  Apply(options);
  EXPECT_GT(std::ifstream(options.output, std::ios::ate | std::ios::binary).tellg(), 8 * 34 * 512);
}

TEST(FoldApply, WhatCannotBeIsRefused) {
  FoldApplyOptions options;
  options.compressor = "/nowhere/a.bin";
  EXPECT_NE(ApplyCompressor(options).message().find("/nowhere/a.bin"), std::string::npos);
  options.compressor = "shipped";
  options.rest = "fold=b.bin";
  EXPECT_NE(ApplyCompressor(options).message().find("--kv: fold="), std::string::npos);
  options.rest = "q9";
  EXPECT_NE(ApplyCompressor(options).message().find("unknown rung"), std::string::npos);
  options.rest.clear();
  options.tokens = 1 << 20;
  EXPECT_NE(ApplyCompressor(options).message().find("--prompt-tokens 1048576: the text has "),
            std::string::npos);
}

TEST(FoldApply, EveryRuleOfThePlanGetsTheCompressor) {
  FoldApplyOptions options;
  options.compressor = "a.bin";
  options.rest = "0-1: f16; 2-: q8_0";
  options.image = 7;
  const Result<Plan> plan = FoldPlan(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(PrintPlan(*plan), "0-1: f16,fold=a.bin,image=7; 2-: q8_0,fold=a.bin,image=7");
}

TEST(FoldBaseline, WritesACompressorOfTheSameShape) {
  const TempFolder folder;
  ASSERT_TRUE(SaveCompressor(RandomCompressor({.factor = 5}), folder.File("like.bin")).ok());
  for (const char* kind : {"mean", "random"}) {
    FoldBaselineOptions options;
    options.like = folder.File("like.bin");
    options.output = folder.File("made.bin");
    options.kind = kind;
    testing::internal::CaptureStdout();
    const Status status = WriteBaseline(options);
    testing::internal::GetCapturedStdout();
    ASSERT_EQ(status.ToString(), "ok");
    const auto made = LoadCompressor(options.output);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ((*made)->factor, 5);
    EXPECT_EQ((*made)->num_layers(), 2);
  }
}

TEST(PlanCost, FoldCountsAsIfAllWereThePrompt) {
  const CacheShape shape{8, 2, 2, 128, 128, 0};
  const Result<Compressor> parsed = ParseCompressor(EmbeddedCompressor(), "embedded");
  ASSERT_TRUE(parsed.ok());
  PlanResources resources;
  resources.compressor = std::make_shared<const Compressor>(*parsed);
  const Result<PlanCost> folded = EstimatePlan(*ParsePlan("fold"), shape, resources, 4096);
  ASSERT_TRUE(folded.ok());
  EXPECT_EQ(folded->bytes * 4, folded->bytes_f16);
  // 3 tokens are left over and lie in a page of their own, which counts whole.
  const Result<PlanCost> odd = EstimatePlan(*ParsePlan("fold"), shape, resources, 4099);
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->ranges[0].stages[0].tokens, 3);
  EXPECT_EQ(odd->bytes, folded->bytes + 8 * 64 * 1024);
  const Result<PlanCost> blind = EstimatePlan(*ParsePlan("fold"), shape, {.assumed = true}, 4096);
  ASSERT_TRUE(blind.ok());
  EXPECT_EQ(blind->bytes, blind->bytes_f16);
}

}  // namespace fold_apply_test
}  // namespace varve::cli
