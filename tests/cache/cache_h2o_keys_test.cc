// The H2O system's configuration as it is (tests/data/h2o/configuration.json, every key at its test
// settings) on a running cache, and what each key changes there.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cache/packing_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/test_data.h"
#include "varve/properties.h"

namespace varve {
namespace cache_h2o_keys_test {

using Json = nlohmann::json;

Json Configuration() {
  std::ifstream file(TestDataPath("h2o/configuration.json"));
  return Json::parse(file);
}

CacheShape Shape() {
  return ShapeOf(
      {.layers = 6, .kv_heads = 1, .group = 1, .key_dim = 64, .value_dim = 64, .page = 0});
}

const RetentionWork& Work() {
  static const RetentionWork work(Shape(), 1024);
  return work;
}

// Does the work slowly, so that groups wait for workers, and knows how many worked and on what.
class CountingWork final : public PackWork {
 public:
  void Run(const CacheShape& shape, PackJob& job) override {
    {
      const std::lock_guard lock(mutex_);
      if (job.kind == PackJob::Kind::kPack) {
        threads.insert(std::this_thread::get_id());
        groups.insert(job.pages.size());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CodecPackWork()->Run(shape, job);
  }
  std::set<std::thread::id> threads;
  std::multiset<size_t> groups;  // by pages

 private:
  std::mutex mutex_;
};

class CountingLog final : public LogSink {
 public:
  void OnLine(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

struct KeyRun {
  std::string signature;  // all that may differ from run to run by configuration alone
  CacheReport report;
  std::vector<std::string> lines;
};

KeyRun RunWith(const Json& configuration, int64_t tokens) {
  KeyRun result;
  const Result<Plan> plan = ParsePlanJson(configuration.dump());
  EXPECT_OK(plan.status());
  CountingWork work;
  CountingLog log;
  CacheOptions options;
  options.log = &log;
  RetentionRun run(Shape(), PrintPlan(*plan), Work(), std::move(options), WithWork(&work));
  const SequenceId id = *run.cache->CreateSequence();
  run.records = false;
  run.after_step = [&] { run.cache->WaitForPacking(); };
  run.Feed(id, tokens, 32);
  result.report = run.cache->Report();
  result.lines = log.lines;
  std::ostringstream signature;
  for (const char* name :
       {"policy_layers", "keep_ratio", "total_evict_tokens", "plans", "target_keep",
        "floor_keep_by_recent_sink", "lossless_layers", "lossless_pages_packed",
        "lossless_compressed_bytes", "lossless_pages_compared", "lossless_block_tokens",
        "lossless_pages_now", "lossless_decode_cache_hit"})
    signature << name << '=' << FindProperty(*run.cache, name)->text() << ' ';
  for (int layer = 0; layer < Shape().num_layers; ++layer) {
    for (const int64_t first : run.PagesOf(id, layer)) signature << first << ',';
  }
  for (const size_t group : work.groups) signature << " g" << group;
  signature << " threads=" << work.threads.size() << " logs=" << !log.lines.empty()
            << " skips=" << (result.report.lossless.backpressure_skips > 0);
  result.signature = signature.str();
  return result;
}

TEST(H2oConfiguration, RunsAsItIs) {
  const KeyRun run = RunWith(Configuration(), 1024);
  const CacheReport& report = run.report;
  EXPECT_EQ(report.retention.layers, 4);
  EXPECT_GE(report.retention.lossy_ratio, 3.0);
  EXPECT_EQ(report.lossless.layers, 6);
  EXPECT_GT(report.lossless.pages_now, 20u);
  EXPECT_GT(report.lossless.ratio(), 1.05);  // of noise in f16
  EXPECT_EQ(report.lossless.pages_compared, 0u);
  EXPECT_EQ(report.lossless.fallbacks, 0u);
  EXPECT_TRUE(report.lossless.consistent());
  EXPECT_TRUE(report.plan_notes.empty());
  EXPECT_TRUE(run.lines.empty());
}

TEST(H2oConfiguration, ABlockOfNoWholePagesIsRoundedAndSaysSo) {
  Json configuration = Configuration();
  configuration["kv_lossless_block_tokens"] = 100;
  const KeyRun run = RunWith(configuration, 640);
  EXPECT_EQ(run.report.lossless.block_tokens, 128u);
  ASSERT_EQ(run.report.plan_notes.size(), 2u);  // a rule for the front, one for the rest
  EXPECT_EQ(run.report.plan_notes[0], "layers 0-1: pack_block=100 runs as 128: whole pages of 32");
}

TEST(H2oConfiguration, LogLinesTellTheMetricsByName) {
  Json configuration = Configuration();
  configuration["kv_h2o_log_stats"] = true;
  const KeyRun run = RunWith(configuration, 640);
  ASSERT_GT(run.lines.size(), 3u);
  for (const char* part : {"stats: ", "lossy_ratio=", "total_evict_tokens=", "lossless_ratio=",
                           "kv_content_consistency_pass=1"})
    EXPECT_NE(run.lines.back().find(part), std::string::npos) << run.lines.back();
}

// A key, a value that differs from the configuration's, and what else the comparison needs.
struct KeyCase {
  const char* key;
  Json value;
  Json beside = Json::object();
};

TEST(H2oConfiguration, EveryKeyChangesWhatTheCacheDoes) {
  const Json probe = {{"kv_lossless_runtime_mode", "probe"}};
  const KeyCase cases[] = {
      {"kv_h2o_enable", false, {{"kv_lossless_scope", "front_n"}}},
      {"kv_h2o_layer_start", 3},
      {"kv_h2o_layer_end", 4},
      {"kv_h2o_block_tokens", 16},
      {"kv_h2o_sink_tokens", 64},
      {"kv_h2o_recent_tokens", 32},
      {"kv_h2o_target_mode", "static"},
      {"kv_h2o_target_keep_ratio", 0.4, {{"kv_h2o_target_mode", "static"}}},
      {"kv_h2o_target_lossy_ratio", 2.5},
      {"kv_h2o_ema_alpha", 0.0, {{"kv_h2o_target_lossy_ratio", 1.8}}},
      {"kv_h2o_update_interval", 32},
      {"kv_h2o_trigger_min_tokens", 512},
      {"kv_h2o_log_stats", true},
      {"kv_lossless_enable", false},
      {"kv_lossless_scope", 1},
      {"kv_lossless_front_n", 1, {{"kv_lossless_scope", "front_n"}}},
      {"kv_lossless_codec", "none"},
      {"kv_lossless_runtime_enable", false},
      {"kv_lossless_runtime_mode", "full"},
      {"kv_lossless_block_tokens", 32},
      {"kv_lossless_hot_sink_tokens", 96},
      {"kv_lossless_hot_recent_tokens", 192},
      {"kv_lossless_store_bootstrap_tokens", 384},
      {"kv_lossless_store_grouped_step_tokens", 128},
      {"kv_lossless_predictors_k", "delta_seq"},
      {"kv_lossless_predictors_v", "xor_seq"},
      {"kv_lossless_async_threads", 1},
      {"kv_lossless_max_queue", 1},
      {"kv_lossless_decode_cache_blocks", 0},
      {"kv_lossless_strict_roundtrip_check", true},
      {"kv_lossless_log_stats", true},
      {"kv_lossless_kept_sample_layers", 2, probe},
      {"kv_lossless_kept_sample_token_interval", 128, probe},
      {"kv_lossless_front_sample_token_interval", 128, probe},
  };
  std::set<std::string> tried;
  for (const KeyCase& change : cases) {
    Json before = Configuration();
    before.update(change.beside);
    Json after = before;
    ASSERT_TRUE(before.contains(change.key)) << change.key;
    after[change.key] = change.value;
    EXPECT_NE(RunWith(before, 640).signature, RunWith(after, 640).signature) << change.key;
    tried.insert(change.key);
  }
  const Json all = Configuration();
  for (const auto& item : all.items()) EXPECT_TRUE(tried.contains(item.key())) << item.key();
}

TEST(H2oConfiguration, AbsentKeysHaveTheDefaultsOfTheSystem) {
  Json said = {{"kv_h2o_enable", true},
               {"kv_lossless_enable", true},
               {"kv_lossless_codec", "gear_delta"},
               {"kv_lossless_runtime_enable", true},
               {"kv_lossless_scope", 3},
               {"kv_lossless_runtime_mode", "store"}};
  const std::string absent = PrintPlan(*ParsePlanJson(said.dump()));
  said.update(Json{{"kv_h2o_layer_start", 2},
                   {"kv_h2o_layer_end", -1},
                   {"kv_h2o_target_mode", "adaptive"},
                   {"kv_h2o_target_lossy_ratio", 3.0},
                   {"kv_lossless_front_n", 2},
                   {"kv_lossless_block_tokens", 128},
                   {"kv_lossless_decode_cache_blocks", 64},
                   {"kv_lossless_strict_roundtrip_check", false},
                   {"kv_lossless_log_stats", false},
                   {"kv_h2o_log_stats", false}});
  EXPECT_EQ(absent, PrintPlan(*ParsePlanJson(said.dump())));
  // The others have the same defaults in the grammar: page 64, sink 32, recent 256, ema 0.9, every
  // 16, trigger 512, hot 16/256, bootstrap 32, step 256, one thread, a queue of 256.
  said.update(Json{{"kv_h2o_block_tokens", 64},
                   {"kv_h2o_sink_tokens", 32},
                   {"kv_h2o_recent_tokens", 256},
                   {"kv_h2o_ema_alpha", 0.9},
                   {"kv_h2o_update_interval", 16},
                   {"kv_h2o_trigger_min_tokens", 512},
                   {"kv_lossless_hot_sink_tokens", 16},
                   {"kv_lossless_hot_recent_tokens", 256},
                   {"kv_lossless_store_bootstrap_tokens", 32},
                   {"kv_lossless_store_grouped_step_tokens", 256},
                   {"kv_lossless_predictors_k", "raw,delta_seq,xor_seq,pair_delta"},
                   {"kv_lossless_predictors_v", "raw,delta_seq,xor_seq"},
                   {"kv_lossless_async_threads", 1},
                   {"kv_lossless_max_queue", 256}});
  const Json minimal = Json::parse(R"({"kv_h2o_enable": true, "kv_lossless_enable": true,
      "kv_lossless_codec": "gear_delta", "kv_lossless_runtime_enable": true,
      "kv_lossless_scope": 3, "kv_lossless_runtime_mode": "store"})");
  EXPECT_EQ(RunWith(minimal, 1024).signature, RunWith(said, 1024).signature);
}

}  // namespace cache_h2o_keys_test
}  // namespace varve
