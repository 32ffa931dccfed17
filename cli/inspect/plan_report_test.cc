#include "cli/inspect/plan_report.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace plan_report_test {

CacheShape Shape(int num_layers) {
  CacheShape shape;
  shape.num_layers = num_layers;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 64;
  return shape;
}

PlanCost Cost(std::string_view text, int num_layers, int64_t num_tokens) {
  Result<PlanCost> cost =
      EstimatePlan(*ParsePlan(text), Shape(num_layers), {.assumed = true}, num_tokens);
  EXPECT_TRUE(cost.ok()) << cost.status().message();
  return cost.ok() ? *cost : PlanCost();
}

TEST(PlanReport, F16CostsWhatF16Costs) {
  const PlanCost cost = Cost("f16", 3, 640);
  EXPECT_EQ(cost.bytes_f16, 640u * 3 * 2 * 128 * 2);
  EXPECT_EQ(cost.bytes, cost.bytes_f16);
  EXPECT_EQ(cost.payload, cost.bytes);
  EXPECT_EQ(cost.page_tokens, 64);
}

TEST(PlanReport, ScalesOfBlocksAreCounted) {
  // 34 bytes hold 32 values in q8_0, 18 in q4_0.
  const PlanCost cost = Cost("k=q8_0,v=q4_0,exact=0", 1, 64);
  EXPECT_EQ(cost.payload, 64u * 2 * 2 * (34 + 18));
}

TEST(PlanReport, WhatRestsIsCountedApart) {
  const PlanCost cost = Cost("q8_0,open=128,idle=q4_0,exact=64", 2, 640 + 5);
  EXPECT_EQ(cost.idle_bytes, 2u * (2 * 64 * 512 + 9 * 64 * 4 * 36));  // exact and filling stay
  ASSERT_TRUE(cost.ranges[0].idle.has_value());
  EXPECT_EQ(cost.ranges[0].idle->pages, 9);
  EXPECT_EQ(cost.ranges[0].idle->k, "q4_0");
  const PlanCost plain = Cost("q8_0,open=128,exact=64", 2, 640 + 5);
  EXPECT_EQ(plain.bytes, cost.bytes);
  EXPECT_EQ(plain.idle_bytes, plain.bytes);
  EXPECT_FALSE(plain.ranges[0].idle.has_value());
}

TEST(PlanReport, APageTakesWholeSlotsOf256Bytes) {
  CacheShape shape = Shape(1);
  shape.num_kv_heads = 1;
  shape.page_tokens = 16;
  Result<PlanCost> cost = EstimatePlan(*ParsePlan("q4_0,exact=0"), shape, {.assumed = true}, 16);
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_EQ(cost->payload, 16u * 2 * 2 * 18);
  EXPECT_EQ(cost->bytes, 1280u);
  EXPECT_EQ(cost->bytes_f16, 4096u);
  EXPECT_EQ(cost->ranges[0].bytes, 1280u);
  EXPECT_EQ(cost->ranges[0].payload, cost->payload);
}

TEST(PlanReport, AFillingPageCountsWhole) {
  EXPECT_EQ(Cost("f16", 1, 65).bytes, Cost("f16", 1, 128).bytes);
  EXPECT_EQ(Cost("f16", 1, 0).bytes, 0u);
}

TEST(PlanReport, EveryPageIsInOneStage) {
  const PlanCost cost =
      Cost("age=f16:128/q8_0:512/q4_0,open=64,window=1024,sink=1,exact=0", 1, 2000);
  ASSERT_EQ(cost.ranges.size(), 1u);
  // filling 16 tokens; ages of full pages are 16, 80, 144, … 1936.
  const std::vector<StageCost>& stages = cost.ranges[0].stages;
  ASSERT_EQ(stages.size(), 6u);
  EXPECT_EQ(stages[0].tokens, 16);
  EXPECT_EQ(stages[1].pages, 1);  // open, age 0-63
  EXPECT_EQ(stages[2].pages, 1);  // f16, age 64-127
  EXPECT_EQ(stages[3].pages, 6);  // q8_0, age 128-511: 144 … 464
  EXPECT_EQ(stages[4].pages, 9);  // q4_0, age 512-1023: 528 … 976, and the sink page
  EXPECT_EQ(stages[5].state, "dropped");
  EXPECT_EQ(stages[5].pages, 14);
  EXPECT_EQ(stages[5].layer_bytes, 0u);
}

TEST(PlanReport, ExactPagesAreAStateOfTheirOwn) {
  const PlanCost cost = Cost("q4_0,open=64,window=512,sink=1,exact=100", 1, 1030);
  const std::vector<StageCost>& stages = cost.ranges[0].stages;
  ASSERT_EQ(stages.size(), 5u);
  EXPECT_EQ(stages[0].tokens, 6);
  // Of the two pages that touch the first 100 tokens the window drops the one without a sink.
  EXPECT_EQ(stages[1].state, "exact");
  EXPECT_EQ(stages[1].pages, 1);
  EXPECT_EQ(stages[1].k, "f16");
  EXPECT_EQ(stages[1].layer_payload, 64u * 512);
  EXPECT_EQ(stages[2].pages, 1);  // open: age 6
  EXPECT_EQ(stages[3].pages, 7);  // ages 70 … 454
  EXPECT_EQ(stages[4].pages, 7);  // dropped
  EXPECT_EQ(Cost("q8_0", 1, 1030).ranges[0].stages.size(), 2u);
}

TEST(PlanReport, LayersWithTheSamePlanAreOneRange) {
  const PlanCost cost = Cost("0-1: f16; 3-: q8_0", 6, 64);
  ASSERT_EQ(cost.ranges.size(), 2u);  // layer 2 is f16 by default
  EXPECT_EQ(cost.ranges[0].last_layer, 2);
  EXPECT_EQ(cost.ranges[1].first_layer, 3);
  EXPECT_EQ(cost.ranges[1].last_layer, 5);
}

TEST(PlanReport, APlanThatCannotRunIsAnError) {
  EXPECT_EQ(EstimatePlan(*ParsePlan("cross=q8_0"), Shape(1), {.assumed = true}, 64).status().code(),
            StatusCode::kUnimplemented);
}

TEST(PlanReport, APolicyAimsAtItsBytesFromTheTriggerOn) {
  const PlanCost cost = Cost("0: f16; 1-: evict=demote,ratio=4,trigger=512,exact=0", 3, 1024);
  ASSERT_EQ(cost.ranges.size(), 2u);
  EXPECT_EQ(cost.ranges[0].policy_bytes, 0u);
  EXPECT_EQ(cost.ranges[1].policy_bytes, 2u * 1024 * 512 / 4);
  EXPECT_EQ(cost.bytes, cost.bytes_f16);
  // Rungs to which a score may demote pages are not stages of age.
  ASSERT_EQ(cost.ranges[1].stages.size(), 2u);
  EXPECT_EQ(cost.ranges[1].stages[1].age, "0-");
  EXPECT_EQ(Cost("evict=h2o,trigger=512", 3, 511).ranges[0].policy_bytes, 0u);
  EXPECT_EQ(Cost("evict=h2o,budget=1MiB", 3, 1024).ranges[0].policy_bytes, 1u << 20);
}

TEST(PlanReport, AFallbackIsSettledAsACacheWouldSettleIt) {
  CacheShape shape = Shape(2);
  shape.value_dim = 80;  // no multiple of 32
  const Plan plan = *ParsePlan("q8_0,fallback=bf16");
  for (const bool assumed : {false, true}) {
    const Result<PlanCost> cost = EstimatePlan(plan, shape, {.assumed = assumed}, 64);
    ASSERT_TRUE(cost.ok()) << cost.status().message();
    EXPECT_EQ(cost->ranges[0].stages.back().k, "q8_0");
    EXPECT_EQ(cost->ranges[0].stages.back().v, "bf16");
    ASSERT_EQ(cost->fallbacks.size(), 1u);
    EXPECT_EQ(cost->fallbacks[0].part, Part::kValue);
    EXPECT_EQ(cost->fallbacks[0].asked, "q8_0");
    EXPECT_EQ(cost->fallbacks[0].used, "bf16");
  }
  // Without a codebook pq falls back; where one is assumed it counts as pq.
  const Plan codes = *ParsePlan("pq4,fallback=q4_0");
  EXPECT_EQ(EstimatePlan(codes, Shape(1), {}, 640)->ranges[0].stages.back().k, "q4_0");
  EXPECT_EQ(EstimatePlan(codes, Shape(1), {.assumed = true}, 640)->ranges[0].stages.back().k,
            "pq32x8");
  EXPECT_EQ(EstimatePlan(*ParsePlan("pq4"), Shape(1), {}, 640).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace plan_report_test
}  // namespace varve::cli
