#include "cli/report/retention_report.h"

#include <gtest/gtest.h>

#include "cli/report/cache_metrics.h"

namespace varve::cli {
namespace retention_report_test {

RetentionStats Stats() {
  RetentionStats stats;
  stats.layers = 4;
  stats.plans = 10;
  stats.target_ratio = 3.5;
  stats.ratio_bound = 16.0 / 6;
  return stats;
}

TEST(RetentionReport, SaysWhenFloorsMakeTheTargetImpossible) {
  RetentionStats stats = Stats();
  EXPECT_EQ(FloorNote(stats, 1024), "");
  stats.plans_bound = 3;
  const std::string never = FloorNote(stats, 1024);
  EXPECT_NE(never.find("ratio 3.50 cannot be held"), std::string::npos) << never;
  EXPECT_NE(never.find("3 of 10 plans"), std::string::npos) << never;
  EXPECT_NE(never.find("it allows 2.67 for certain"), std::string::npos) << never;
  // Long enough a text has room; the note says that it was short before.
  stats.ratio_bound = 10;
  const std::string once = FloorNote(stats, 4096);
  EXPECT_NE(once.find("while the text was short"), std::string::npos) << once;
  stats.target_ratio = 0;
  const std::string bytes = FloorNote(stats, 4096);
  EXPECT_NE(bytes.find("the budget cannot be held"), std::string::npos) << bytes;
}

TEST(RetentionReport, APlanWithoutAPolicySaysNothing) {
  EXPECT_EQ(RetentionLine(CacheMetrics(), 100), "");
  EXPECT_EQ(FloorNote(RetentionStats(), 100), "");
}

TEST(CacheMetricsKeys, HaveTheNamesOfTheSpecification) {
  CacheMetrics metrics;
  metrics.total_ratio = 1.8;
  metrics.retention = Stats();
  metrics.retention.tokens_evicted = 640;
  metrics.retention.tokens_evicted_last = 64;
  metrics.retention.effective_keep = 0.3;
  metrics.retention.floor_keep = 0.2;
  metrics.retention.kept_part = 0.25;
  metrics.retention.plan_us = 12;
  metrics.lossless.wait_max_us = 10000;
  nlohmann::ordered_json row = {{"plan", "h2o"}};
  AddCacheMetrics(metrics, &row);
  EXPECT_EQ(row["total_ratio"], 1.8);
  EXPECT_EQ(row["target_keep_effective"], 0.3);
  EXPECT_EQ(row["floor_keep_by_recent_sink"], 0.2);
  EXPECT_EQ(row["block_quantized_keep"], 0.25);
  EXPECT_EQ(row["evict_us"], 12);
  EXPECT_EQ(row["last_evict_tokens"], 64);
  EXPECT_EQ(row["total_evict_tokens"], 640);
  EXPECT_EQ(row["lossless_async_wait_headroom_us"], 30000);
  EXPECT_EQ(row["lossless_async_wait_headroom_ratio"], 0.75);
  EXPECT_EQ(row["plan"], "h2o");
  for (const char* key : {"keep_ratio", "lossy_ratio", "lossy_ratio_run", "total_ratio_avg",
                          "ratio_bound", "codec_us", "kv_content_consistency_pass"}) {
    EXPECT_TRUE(row[key].is_number()) << key;
  }
  for (const char* key :
       {"ratio", "raw_bytes", "compressed_bytes", "decompressed_bytes", "compress_us",
        "decompress_us", "queue_depth_peak", "fallback_count", "backpressure_skip_count",
        "async_queue_peak", "async_wait_us", "decode_cache_hit", "decode_cache_miss"}) {
    EXPECT_TRUE(row.contains("lossless_" + std::string(key))) << key;
  }
}

TEST(CacheMetricsKeys, AreNeutralWhereNothingHappened) {
  nlohmann::ordered_json row;
  AddCacheMetrics(CacheMetrics(), &row);
  for (const char* key : {"keep_ratio", "lossy_ratio", "lossless_ratio", "total_ratio",
                          "total_ratio_avg", "kv_content_consistency_pass"})
    EXPECT_EQ(row[key], 1) << key;
  EXPECT_EQ(row["lossless_async_wait_headroom_us"], 40000);
  EXPECT_EQ(row["lossless_fallback_count"], 0);
}

TEST(CacheMetricsKeys, ConsistencyFailsWithAMismatchOrAFailedRestore) {
  LosslessStats stats;
  EXPECT_TRUE(stats.consistent());
  stats.fallbacks = 1;  // a worker without memory: the page stayed as it was
  EXPECT_TRUE(stats.consistent());
  stats.mismatches = 1;
  EXPECT_FALSE(stats.consistent());
  stats = LosslessStats();
  stats.restore_failures = 1;
  EXPECT_FALSE(stats.consistent());
}

}  // namespace retention_report_test
}  // namespace varve::cli
