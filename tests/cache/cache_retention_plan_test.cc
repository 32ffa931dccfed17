// From clauses and keys to the rule that a layer works by, and what is refused on the way.

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/resolved_plan.h"
#include "retention/policy_table.h"
#include "tests/cache_testing.h"

namespace varve {
namespace cache_retention_plan_test {

CacheShape Shape() {
  return ShapeOf({.layers = 6, .kv_heads = 8, .key_dim = 64, .value_dim = 64, .page = 32});
}

std::vector<LayerForm> Layers(std::string_view text) {
  Result<Plan> plan = ParsePlan(text);
  EXPECT_EQ(plan.status().ToString(), "ok") << text;
  Result<ResolvedPlan> resolved = ResolvePlan(*plan, Shape());
  EXPECT_EQ(resolved.status().ToString(), "ok") << text;
  return resolved->layers;
}

std::string ErrorOf(std::string_view text) {
  Result<Plan> plan = ParsePlan(text);
  if (!plan.ok()) return plan.status().message();
  CacheOptions options;
  options.plan = *plan;
  Result<std::unique_ptr<Cache>> cache = Cache::Create(Shape(), options);
  return cache.ok() ? "(made)" : cache.status().message();
}

TEST(RetentionClauses, DefaultsAreThoseOfTheDocumentation) {
  const RetentionRule rule = *Layers("evict=h2o")[0].retention;
  EXPECT_EQ(rule.policy->name, "h2o");
  EXPECT_EQ(rule.ratio, 3.5);
  EXPECT_EQ(rule.budget_bytes, 0u);
  EXPECT_EQ(rule.sink_tokens, 32);
  EXPECT_EQ(rule.recent_tokens, 256);
  EXPECT_EQ(rule.trigger_tokens, 512);
  EXPECT_EQ(rule.every_tokens, 16);
  EXPECT_EQ(rule.ema, 0.9);
  EXPECT_TRUE(rule.levels.empty());
}

TEST(RetentionClauses, ReachTheLayersOfTheirRule) {
  const std::vector<LayerForm> layers =
      Layers("2-3: evict=tova,ratio=2,sink=1,recent=2,trigger=3,every=4,ema=0.5");
  for (int layer : {0, 1, 4, 5}) EXPECT_FALSE(layers[layer].retention) << layer;
  for (int layer : {2, 3}) {
    const RetentionRule rule = *layers[layer].retention;
    EXPECT_EQ(rule.policy->name, "tova");
    EXPECT_EQ(rule.ratio, 2);
    EXPECT_EQ(rule.sink_tokens, 1);
    EXPECT_EQ(rule.recent_tokens, 2);
    EXPECT_EQ(rule.trigger_tokens, 3);
    EXPECT_EQ(rule.every_tokens, 4);
    EXPECT_EQ(rule.ema, 0.5);
  }
}

TEST(RetentionClauses, DemoteHasALadderBelowWhatThePlanSeals) {
  const auto ladder = [](std::string_view text) {
    const std::vector<LayerForm> layers = Layers(text);
    const LayerForm& plan = layers[0];
    std::string names;
    for (const LayerForm::Stage& stage : plan.stages) {
      names += (names.empty() ? "" : " ") + std::string(stage.k->name);
      if (stage.v != stage.k) names += "/" + std::string(stage.v->name);
    }
    const std::vector<RetentionLevel>& levels = plan.retention->levels;
    EXPECT_EQ(levels.size(), plan.stages.size() - plan.first_demotion + 1) << text;
    for (size_t i = 1; i < levels.size(); ++i) {
      EXPECT_LT(levels[i].bytes, levels[i - 1].bytes) << text;
      EXPECT_GT(levels[i].distortion, levels[i - 1].distortion) << text;
      EXPECT_LT(levels[i].distortion, 1) << text;
      EXPECT_EQ(plan.stages[plan.first_demotion + i - 1].from_age, LayerForm::kNeverByAge);
    }
    return names;
  };
  EXPECT_EQ(ladder("evict=demote"), "f16 q8_0 t4");
  EXPECT_EQ(ladder("q8_0,evict=demote"), "q8_0 t4");
  EXPECT_EQ(ladder("q4_0,evict=demote"), "q4_0");
  EXPECT_EQ(ladder("age=f16:64/q8_0,evict=demote"), "f16 q8_0 t4");
  EXPECT_EQ(ladder("f32,open_rung=f32,evict=demote"), "f32 q8_0 t4");
  // No lower than the ratio asks, unless no rung is low enough.
  EXPECT_EQ(ladder("evict=demote,ratio=1.8"), "f16 q8_0");
  EXPECT_EQ(ladder("q8_0,evict=demote,ratio=1.8"), "q8_0");
  EXPECT_EQ(ladder("evict=demote,ratio=4"), "f16 q8_0 t4/t3");
  EXPECT_EQ(ladder("evict=demote,ratio=4.4"), "f16 q8_0 t3");
  EXPECT_EQ(ladder("evict=demote,ratio=30"), "f16 q8_0 t4 t4/t3 t3 t3/t2 t2");
  EXPECT_EQ(ladder("evict=demote,budget=64MiB"), "f16 q8_0 t4 t4/t3 t3 t3/t2 t2");
}

TEST(RetentionClauses, KeysOfTheH2oSystemGiveTheSameLayers) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kv_h2o_enable": true})", "2-: evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": true, "kv_h2o_layer_start": 1, "kv_h2o_layer_end": 4,
           "kv_h2o_block_tokens": 32, "kv_h2o_sink_tokens": 16, "kv_h2o_recent_tokens": 96,
           "kv_h2o_target_mode": "adaptive", "kv_h2o_target_lossy_ratio": 3.5,
           "kv_h2o_ema_alpha": 0.8, "kv_h2o_update_interval": 8,
           "kv_h2o_trigger_min_tokens": 384})",
       "1-4: page=32,evict=h2o,ratio=3.5,sink=16,recent=96,ema=0.8,every=8,trigger=384"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_mode": "static",
           "kv_h2o_target_keep_ratio": 0.25})",
       "2-: evict=h2o,ratio=4"},
      {R"({"kv": "q8_0", "kv_h2o_enable": true, "kv_h2o_layer_start": 0})",
       "q8_0,evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": false, "kv_h2o_sink_tokens": 16})", ""},
  };
  for (const auto& [json, text] : cases) {
    Result<Plan> plan = ParsePlanJson(json);
    ASSERT_EQ(plan.status().ToString(), "ok") << json;
    Result<ResolvedPlan> resolved = ResolvePlan(*plan, Shape());
    ASSERT_EQ(resolved.status().ToString(), "ok") << json;
    EXPECT_TRUE(resolved->layers == Layers(text)) << json;
  }
}

TEST(RetentionClausesError, NameClauseValueAndLimit) {
  const std::pair<const char*, const char*> cases[] = {
      {"evict=h2o,ratio=0.5", "plan: clause 2 \"ratio=0.5\" (column 11): ratio 0.5 must be > 1"},
      {"evict=h2o,ratio=1", "plan: clause 2 \"ratio=1\" (column 11): ratio 1 must be > 1"},
      {"evict=h2o,ratio=-3", "plan: clause 2 \"ratio=-3\" (column 11): ratio -3 must be > 1"},
      {"evict=h2o,ratio=nan",
       "plan: clause 2 \"ratio=nan\" (column 11): ratio \"nan\" is not a finite number"},
      {"evict=h2o,ratio=inf",
       "plan: clause 2 \"ratio=inf\" (column 11): ratio \"inf\" is not a finite number"},
      {"evict=h2o,ema=1", "plan: clause 2 \"ema=1\" (column 11): ema 1 must be >= 0 and < 1"},
      {"evict=h2o,every=0", "plan: clause 2 \"every=0\" (column 11): every 0 < 1"},
      {"evict=nonsense",
       "plan: clause 1 \"evict=nonsense\" (column 1): unknown evict \"nonsense\"; known: h2o "
       "window "
       "random tova snapkv demote"},
      {"recent=96", "plan: layers 0-, clause \"recent=96\": recent= requires evict="},
      {"2-6: evict=h2o", "plan: layers 2-6: layer 6 > 5, the model's last"},
      {"9-: evict=h2o", "plan: layers 9-: layer 9 > 5, the model's last"},
      // 1 + 3 pages of 32 tokens x 8 heads x 128 values in f16, in 6 layers.
      {"evict=h2o,budget=1MiB,sink=32,recent=96",
       "plan: layers 0-, clause \"budget=1048576\": sink 32 and recent 96 tokens alone take "
       "1572864 bytes"},
      // Demotion can bring them down to two bits: but for the exact page, in 2 layers.
      {"2-3: evict=demote,budget=1B",
       "plan: layers 2-3, clause \"budget=1\": sink 32 and recent 256 tokens alone take 294912 "
       "bytes"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(ErrorOf(text), message) << text;
  EXPECT_EQ(ErrorOf("evict=h2o,budget=1536KiB,sink=32,recent=96"), "(made)");
}

TEST(RetentionClausesError, APlanBuiltByHandIsCheckedToo) {
  const auto refused = [](auto&& change) {
    Plan plan;
    plan.rules.resize(1);
    plan.rules[0].evict = "h2o";
    change(plan.rules[0]);
    const Status status = ResolvePlan(plan, Shape()).status();
    return status.code() == StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](LayerRule&) {}));
  EXPECT_TRUE(
      refused([](LayerRule& rule) { rule.ratio = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.ratio = 0.9; }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.ema = -0.1; }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.every_tokens = 0; }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.recent_tokens = -1; }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.evict = "lru"; }));
  EXPECT_TRUE(refused([](LayerRule& rule) { rule.evict.reset(), rule.ratio = 3; }));
}

}  // namespace cache_retention_plan_test
}  // namespace varve
