#include "cli/report/retention_report.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace retention_report_test {

// One layer of 512 bytes a token in f16: a page of 64 tokens is 32 KiB.
CacheShape Shape() {
  CacheShape shape;
  shape.num_layers = 4;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 64;
  return shape;
}

RetentionStats Stats(int layers) {
  RetentionStats stats;
  stats.layers = layers;
  stats.plans = 10;
  return stats;
}

TEST(RetentionReport, TheBoundIsWhatTheFloorsLeave) {
  const Plan plan = *ParsePlan("2-: evict=h2o,ratio=3.5,sink=32,recent=256");
  // At 1024 tokens: one page of sink, four of recent, and one that begins with the next token.
  const RetentionReport report = MakeRetentionReport(plan, Shape(), Stats(2), 2.0, 1024);
  EXPECT_DOUBLE_EQ(report.ratio_bound, 16.0 / 6);
  EXPECT_DOUBLE_EQ(report.target_ratio, 3.5);
  // In the middle of a page the page that grows is one of five.
  EXPECT_DOUBLE_EQ(MakeRetentionReport(plan, Shape(), Stats(2), 2.0, 1024 + 32).ratio_bound,
                   16.5 / 6);
  // Recent pages in 8 bits take 17 of 32 KiB; the page that comes next is open.
  const Plan packed = *ParsePlan("2-: q8_0,evict=h2o,ratio=3.5,sink=32,recent=256");
  EXPECT_DOUBLE_EQ(MakeRetentionReport(packed, Shape(), Stats(2), 2.0, 1024).ratio_bound,
                   16.0 * 32 / (5 * 17 + 32));
}

TEST(RetentionReport, TheBoundOfDemoteCountsEveryPageInItsLowestRung) {
  // At 1024 tokens one exact page, 15 in t4 (K 4.5 bits a value, V 4.25), and one that begins with
  // the next token.
  const Plan plan = *ParsePlan("2-: evict=demote,ratio=3.5");
  EXPECT_DOUBLE_EQ(MakeRetentionReport(plan, Shape(), Stats(2), 2.0, 1024).ratio_bound,
                   16.0 * 32 / (32 + 15 * 8.75 + 32));
}

TEST(RetentionReport, SaysWhenFloorsMakeTheTargetImpossible) {
  const Plan plan = *ParsePlan("evict=h2o,ratio=3.5,sink=32,recent=256");
  RetentionStats stats = Stats(4);
  EXPECT_EQ(FloorNote(MakeRetentionReport(plan, Shape(), stats, 2.0, 1024)), "");
  stats.plans_bound = 3;
  const std::string never = FloorNote(MakeRetentionReport(plan, Shape(), stats, 2.0, 1024));
  EXPECT_NE(never.find("ratio 3.50 cannot be held"), std::string::npos) << never;
  EXPECT_NE(never.find("3 of 10 plans"), std::string::npos) << never;
  EXPECT_NE(never.find("it allows 2.67 for certain"), std::string::npos) << never;
  // Long enough a text has room; the note says that it was short before.
  const std::string once = FloorNote(MakeRetentionReport(plan, Shape(), stats, 2.0, 4096));
  EXPECT_NE(once.find("while the text was short"), std::string::npos) << once;
  const Plan budget = *ParsePlan("evict=h2o,budget=1MiB,sink=32,recent=256");
  const std::string bytes = FloorNote(MakeRetentionReport(budget, Shape(), stats, 2.0, 4096));
  EXPECT_NE(bytes.find("the budget cannot be held"), std::string::npos) << bytes;
}

TEST(RetentionReport, KeysHaveTheNamesOfTheSpecification) {
  RetentionStats stats = Stats(2);
  stats.tokens_evicted = 640;
  stats.tokens_evicted_last = 64;
  stats.effective_keep = 0.3;
  stats.floor_keep = 0.2;
  stats.kept_part = 0.25;
  stats.plan_us = 12;
  nlohmann::ordered_json row = {{"plan", "h2o"}};
  AddRetentionKeys(MakeRetentionReport(*ParsePlan("2-: h2o"), Shape(), stats, 1.8, 1024), &row);
  for (const char* key : {"keep_ratio", "lossy_ratio", "lossy_ratio_run", "whole_ratio"}) {
    EXPECT_TRUE(row[key].is_number()) << key;
  }
  EXPECT_EQ(row["target_keep_effective"], 0.3);
  EXPECT_EQ(row["floor_keep_by_recent_sink"], 0.2);
  EXPECT_EQ(row["block_quantized_keep"], 0.25);
  EXPECT_EQ(row["evict_us"], 12);
  EXPECT_EQ(row["last_evict_tokens"], 64);
  EXPECT_EQ(row["total_evict_tokens"], 640);
  EXPECT_EQ(row["floors_bound"], 0);
  EXPECT_EQ(row["plan"], "h2o");
}

TEST(RetentionReport, APlanWithoutAPolicySaysNothing) {
  const RetentionReport report = MakeRetentionReport(*ParsePlan("q8_0"), Shape(), {}, 1.9, 100);
  nlohmann::ordered_json row = {{"plan", "q8_0"}};
  AddRetentionKeys(report, &row);
  EXPECT_EQ(row.size(), 1u);
  EXPECT_EQ(RetentionLine(report), "");
  EXPECT_EQ(FloorNote(report), "");
}

}  // namespace retention_report_test
}  // namespace varve::cli
