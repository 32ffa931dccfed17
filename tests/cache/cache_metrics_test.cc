// The metrics of a running cache, and docs/metrics.md, which defines them.

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "tests/cache/packing_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/test_data.h"
#include "varve/properties.h"

namespace varve {
namespace cache_metrics_test {

// One layer takes 512 bytes a token in f16: a page of 64 tokens is 32 KiB.
CacheShape Shape() {
  return ShapeOf(
      {.layers = 3, .kv_heads = 2, .group = 1, .key_dim = 64, .value_dim = 64, .page = 64});
}

double NumberOf(const Cache& cache, const char* name) {
  const Result<Property> found = FindProperty(cache, name);
  EXPECT_OK(found.status());
  return found.ok() ? found->number() : -1;
}

// Names of numbers, rungs and layers as the document writes them.
std::string Generic(const std::string& name) {
  std::string text =
      std::regex_replace(name, std::regex("^rung\\.[^.]*\\.[^.]*"), "rung.RUNG.STATE");
  text = std::regex_replace(text, std::regex("^layer\\.[0-9]+"), "layer.N");
  return std::regex_replace(text, std::regex("^(fallback|plan_note)\\.[0-9]+"), "$1.N");
}

TEST(Metrics, EveryPropertyIsInTheDocumentAndTheOtherWayRound) {
  std::ifstream file(TestDataPath() + "/../../docs/metrics.md");
  ASSERT_TRUE(file.is_open());
  std::multiset<std::string> defined;
  const std::regex row("^\\| `([^`]+)` \\|[^|]+\\|[^|]+\\|[^|]*\\|$");
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, row))
      defined.insert(match[1]);
    else
      EXPECT_FALSE(line.starts_with("| `")) << "no name, unit, meaning and neutral: " << line;
  }
  const RetentionWork work(Shape(), 64);
  RetentionRun run(Shape(), "q8_0", work);
  run.Feed(*run.cache->CreateSequence(), 64);
  std::set<std::string> known = {"fallback.N", "plan_note.N"};
  for (const Property& property : Properties(*run.cache)) known.insert(Generic(property.name));
  for (const std::string& name : known)
    EXPECT_EQ(defined.count(name), 1u) << name << " in docs/metrics.md";
  for (const std::string& name : defined) EXPECT_TRUE(known.contains(name)) << name;
}

TEST(CacheMetrics, TheBoundIsWhatTheFloorsLeave) {
  const RetentionWork work(Shape(), 1056);
  const auto bound = [&](const char* plan, int64_t tokens) {
    RetentionRun run(Shape(), plan, work);
    run.attends = false;
    run.Feed(*run.cache->CreateSequence(), tokens);
    EXPECT_DOUBLE_EQ(NumberOf(*run.cache, "target_ratio"), 3.5);
    return NumberOf(*run.cache, "ratio_bound");
  };
  // At 1024 tokens: one page of sink, four of recent, and one that begins with the next token.
  EXPECT_DOUBLE_EQ(bound("1-: evict=h2o,ratio=3.5,sink=32,recent=256", 1024), 16.0 / 6);
  // In the middle of a page the page that grows is one of five.
  EXPECT_DOUBLE_EQ(bound("1-: evict=h2o,ratio=3.5,sink=32,recent=256", 1056), 16.5 / 6);
  // Recent pages in 8 bits take 17 of 32 KiB; the page that comes next is open.
  EXPECT_DOUBLE_EQ(bound("1-: q8_0,evict=h2o,ratio=3.5,sink=32,recent=256", 1024),
                   16.0 * 32 / (5 * 17 + 32));
  // One exact page, 15 in t4 (K 4.5 bits a value, V 4.25), and one that begins.
  EXPECT_DOUBLE_EQ(bound("1-: evict=demote,ratio=3.5", 1024), 16.0 * 32 / (32 + 15 * 8.75 + 32));
}

TEST(CacheMetrics, TotalRatiosAreOfAllLayersNowAndOverTheSteps) {
  const RetentionWork work(Shape(), 1024);
  RetentionRun run(Shape(), "1-: evict=h2o,ratio=3,sink=32,recent=64,trigger=256", work);
  const SequenceId id = *run.cache->CreateSequence();
  run.attends = false;
  double f16 = 0;
  double held = 0;
  run.after_step = [&] {
    const CacheReport report = run.cache->Report();
    EXPECT_DOUBLE_EQ(report.total_ratio,
                     static_cast<double>(report.bytes_f16_seen) /
                         static_cast<double>(report.bytes_held + report.bytes_tables));
    if (report.retention.plans == 0) {
      EXPECT_EQ(report.total_ratio_avg, 1);
      return;
    }
    f16 += static_cast<double>(report.bytes_f16_seen);
    held += static_cast<double>(report.bytes_held + report.bytes_tables);
    EXPECT_DOUBLE_EQ(report.total_ratio_avg, f16 / held);
  };
  run.Feed(id, 1024);
  EXPECT_GT(held, 0);
  const double total = NumberOf(*run.cache, "total_ratio");
  EXPECT_GT(total, 1.4);
  EXPECT_LT(total, NumberOf(*run.cache, "lossy_ratio"));  // layer 0 keeps all
  EXPECT_EQ(NumberOf(*run.cache, "layer.0.tokens_live"), 1024);
  EXPECT_LT(NumberOf(*run.cache, "layer.1.tokens_live"), 512);
  EXPECT_EQ(NumberOf(*run.cache, "layer.0.bytes_held"), 1024 * 512);
}

TEST(CacheMetrics, TimeWaitedIsOfStepsAndDrainingIsApart) {
  const RetentionWork work(Shape(), 512);
  RetentionRun run(Shape(), "pack=store,hot=0/64,bootstrap=64,step=64,decode_cache=4", work);
  const SequenceId id = *run.cache->CreateSequence();
  double sum = 0;
  double most = 0;
  uint64_t steps = 0;
  run.after_step = [&] {
    const LosslessStats stats = run.cache->Report().lossless;
    EXPECT_EQ(stats.wait_steps, ++steps);
    sum += stats.wait_last_us;
    most = std::max(most, stats.wait_last_us);
  };
  run.Feed(id, 512);
  const LosslessStats before = run.cache->Report().lossless;
  EXPECT_GT(before.wait_us, 0);
  EXPECT_NEAR(before.wait_us, sum, 1e-6 * sum);
  EXPECT_EQ(before.wait_max_us, most);
  EXPECT_DOUBLE_EQ(before.wait_mean_us(), before.wait_us / static_cast<double>(steps));
  EXPECT_DOUBLE_EQ(NumberOf(*run.cache, "lossless_async_wait_headroom_us"), 40000 - most);
  run.cache->WaitForPacking();
  const LosslessStats after = run.cache->Report().lossless;
  EXPECT_EQ(after.wait_us, before.wait_us);
  EXPECT_GT(after.drain_us, 0);
  EXPECT_GE(after.queue_depth_peak, after.queue_peak);
  EXPECT_GT(after.queue_depth_peak, 0u);
  EXPECT_EQ(NumberOf(*run.cache, "kv_content_consistency_pass"), 1);
}

TEST(CacheMetrics, BytesByLayerAndPartAddUpToThoseOfPacking) {
  const RetentionWork work(Shape(), 640);
  for (const char* mode : {"store", "probe", "full"}) {
    SCOPED_TRACE(mode);
    RetentionRun run(Shape(), "1-: hot=0/64,step=64,pack=" + std::string(mode), work);
    run.attends = false;
    run.after_step = [&] { run.cache->WaitForPacking(); };
    run.Feed(*run.cache->CreateSequence(), 640);
    const CacheReport report = run.cache->Report();
    uint64_t raw = 0;
    uint64_t packed = 0;
    for (const LayerReport& layer : report.by_layer) {
      raw += layer.lossless_raw_bytes[0] + layer.lossless_raw_bytes[1];
      packed += layer.lossless_packed_bytes[0] + layer.lossless_packed_bytes[1];
    }
    EXPECT_EQ(report.by_layer[0].lossless_raw_bytes[0], 0u);
    EXPECT_GT(report.by_layer[2].lossless_raw_bytes[1],
              report.by_layer[2].lossless_packed_bytes[1]);
    EXPECT_NEAR(static_cast<double>(raw) / static_cast<double>(packed), report.lossless.ratio(),
                0.01);
  }
}

TEST(CacheMetrics, ACorruptedPageFailsTheConsistency) {
  const RetentionWork work(Shape(), 520);
  NotingWork noting;
  RetentionRun run(Shape(), "1: pack=store,hot=0/64,bootstrap=64,step=64", work, {},
                   WithWork(&noting));
  const SequenceId id = *run.cache->CreateSequence();
  run.after_step = [&run] { run.cache->WaitForPacking(); };
  run.Feed(id, 512);
  const PackedPage* packed = noting.PackedAt(1, 128);
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(NumberOf(*run.cache, "kv_content_consistency_pass"), 1);
  packed->data[packed->bytes / 2] ^= std::byte{0x10};
  run.Begin(id, 1);
  run.Layer(0, id, 512, 1);
  ASSERT_OK(
      run.cache->Append(1, id, {work.keys[1].data(), 1, 0, 0}, {work.values[1].data(), 1, 0, 0}));
  std::vector<float> out(2 * 64);
  const AttendRequest request = {id, 1, work.queries[1].data(), 0, 0, out.data(), 0, 0, nullptr};
  EXPECT_EQ(run.cache->Attend(1, {&request, 1}, {}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(NumberOf(*run.cache, "lossless_restore_failures"), 1);
  EXPECT_EQ(NumberOf(*run.cache, "kv_content_consistency_pass"), 0);
}

}  // namespace cache_metrics_test
}  // namespace varve
