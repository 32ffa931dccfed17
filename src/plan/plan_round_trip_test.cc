// Print and parse are inverse, for plans that a random generator makes out of everything that the
// grammar allows, and for both forms.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/plan_rule.h"
#include "varve/plan.h"

namespace varve {
namespace plan_round_trip_test {

class PlanGenerator {
 public:
  explicit PlanGenerator(uint64_t seed) : random_(seed) {}

  Plan MakePlan() {
    Plan plan;
    int next_layer = Chance(0.5) ? 0 : Below(5);
    for (int rules = Below(5); rules >= 0; --rules) {
      LayerRule rule = MakeRule();
      rule.first_layer = next_layer;
      rule.last_layer = rules == 0 && Chance(0.7) ? -1 : next_layer + Below(4);
      next_layer = rule.last_layer + 1 + Below(3);
      plan.rules.push_back(std::move(rule));
    }
    if (Chance(0.5)) plan.settings = MakeSettings();
    return plan;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  bool Chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }
  int64_t Count(int64_t min = 0) {
    const int64_t limit = Chance(0.3) ? 1'000'000'000 : 5000;
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  std::string Rung() {
    static const std::vector<std::string> kRungs = {"f32",   "f16",   "bf16", "q8_0", "q4_0",
                                                    "q8_0r", "q4_0r", "t4",   "t3",   "t2",
                                                    "pq4",   "pq3",   "pq2"};
    if (Chance(0.2))
      return "pq" + std::to_string(1 + Below(512)) + "x" + std::to_string(4 + Below(9));
    return kRungs[static_cast<size_t>(Below(static_cast<int>(kRungs.size())))];
  }

  std::string FileName() {
    static const std::vector<std::string> kParts = {"a",  "B7",   ".bin", "/", ",",  ";",
                                                    ":",  "\"",   "\\",   " ", "=",  "é",
                                                    "\n", "\x7f", "名",   "@", "\t", "-"};
    std::string name;
    for (int parts = 1 + Below(12); parts > 0; --parts) {
      name += kParts[static_cast<size_t>(Below(static_cast<int>(kParts.size())))];
    }
    return name;
  }

  std::string OneOf(std::vector<std::string> words) {
    return words[static_cast<size_t>(Below(static_cast<int>(words.size())))];
  }

  LayerRule MakeRule() {
    LayerRule rule;
    if (Chance(0.4)) rule.k = Rung();
    if (Chance(0.4)) rule.v = Chance(0.3) && rule.k ? *rule.k : Rung();
    if (!(rule.k && rule.v) && Chance(0.4)) {
      int64_t bound = 0;
      for (int stages = Below(4); stages > 0; --stages) {
        bound += 1 + Below(5000);
        rule.age.push_back({Rung(), bound});
      }
      rule.age.push_back({Rung(), -1});
    }
    rule.open_tokens = Count();  // so that a rule always says something
    if (Chance(0.3)) rule.open_rung = OneOf({"f16", "f32", "bf16"});
    if (Chance(0.3)) rule.exact_tokens = Count();
    if (Chance(0.3)) rule.window_tokens = Count(1) % 1'000'000'000 + 1;
    if (Chance(0.3)) rule.evict = OneOf({"h2o", "window", "random", "tova", "snapkv", "demote"});
    if (Chance(0.3)) {
      rule.ratio = 1 + std::exponential_distribution<>(0.1)(random_) + 1e-9;
    } else if (Chance(0.3)) {
      rule.budget_bytes = (1 + random_() % 1000) << (10 * Below(4));
    }
    if (Chance(0.3)) rule.sink_tokens = Count();
    if (Chance(0.3)) rule.recent_tokens = Count();
    if (Chance(0.3)) rule.trigger_tokens = Count();
    if (Chance(0.3)) rule.every_tokens = 1 + Below(100);
    if (Chance(0.3)) rule.ema = std::uniform_real_distribution<>()(random_);
    if (Chance(0.3)) rule.pack = static_cast<PackingMode>(Below(3));
    if (Chance(0.3)) {
      rule.hot_sink_tokens = Count();
      rule.hot_recent_tokens = Count();
    }
    if (Chance(0.3)) rule.bootstrap_tokens = Count();
    if (Chance(0.3)) rule.step_tokens = 1 + Below(1000);
    if (Chance(0.3)) rule.pack_codec = static_cast<PackCodec>(Below(2));
    if (Chance(0.3)) rule.predictors_k = OneOf({"raw", "xor_seq/raw", "pair_delta/delta_seq"});
    if (Chance(0.3)) rule.predictors_v = OneOf({"delta_seq", "raw/delta_seq/xor_seq/pair_delta"});
    if (Chance(0.3)) rule.pack_zstd = Below(2);
    if (Chance(0.3)) rule.pack_block_tokens = 1 + Below(1000);
    if (Chance(0.3)) rule.strict = Below(2);
    if (Chance(0.3)) rule.layer_cache_pages = Below(1 << 20);
    if (Chance(0.3)) rule.sample_layers = 1 + Below(1024);
    if (Chance(0.3)) rule.sample_tokens = 1 + Below(10000);
    if (Chance(0.3)) rule.codebook = FileName();
    if (Chance(0.3)) rule.fold = FileName();
    if (!rule.evict && !rule.fold) {
      if (Chance(0.4)) rule.idle_k = Rung();
      if (Chance(0.4)) rule.idle_v = Chance(0.3) && rule.idle_k ? *rule.idle_k : Rung();
    }
    if (Chance(0.3)) rule.image_tokens = Count();
    if (Chance(0.3)) rule.cross = Rung();
    if (Chance(0.3)) rule.fallback = Rung();
    return rule;
  }

  PlanSettings MakeSettings() {
    PlanSettings settings;
    if (Chance(0.3)) settings.page_tokens = 16 << Below(4);
    if (Chance(0.3)) settings.pack_threads = 1 + Below(64);
    if (Chance(0.3)) settings.pack_queue = 1 + Below(1 << 20);
    if (Chance(0.3)) settings.decode_cache_pages = Below(1 << 30);
    if (Chance(0.3)) settings.prefetch = Below(2);
    if (Chance(0.3)) settings.spill = FileName();
    if (Chance(0.3)) settings.spill_mib = 1 + Below(1 << 24);
    if (Chance(0.3)) settings.keep_mib = Below(1 << 24);
    if (Chance(0.3)) settings.log_stats = Below(2);
    if (Chance(0.3)) settings.fold_positions = static_cast<FoldPositions>(Below(2));
    return settings;
  }

  std::mt19937_64 random_;
};

TEST(PlanRoundTrip, RandomPlansSurviveBothForms) {
  PlanGenerator generator(20240607);
  for (int i = 0; i < 3000; ++i) {
    const Plan plan = generator.MakePlan();
    const std::string text = PrintPlan(plan);
    Result<Plan> from_text = ParsePlan(text);
    ASSERT_TRUE(from_text.ok()) << text << "\n" << from_text.status().message();
    ASSERT_EQ(*from_text, plan) << text;
    ASSERT_EQ(PrintPlan(*from_text), text);

    const std::string json = PrintPlanJson(plan);
    Result<Plan> from_json = ParsePlanJson(json);
    ASSERT_TRUE(from_json.ok()) << json << "\n" << from_json.status().message();
    ASSERT_EQ(*from_json, plan) << json;
    ASSERT_EQ(json.find('\n'), std::string::npos);
  }
}

TEST(PlanRoundTrip, TheCanonicalTextIsTheShortOne) {
  for (const char* text :
       {"q8_0", "k=q8_0,v=q4_0r", "age=f16:512/q8_0:4096/q4_0", "0-1: f16; 2-: q4_0r,open=128",
        "3: q8_0", "2-: f16", "t4,idle=t3", "t4,idle_k=t3,idle_v=t2", "t4,idle_v=t2",
        "k=f16,age=q8_0:64/q4_0", "ratio=3.1", "budget=64MiB", "hot=16/256",
        "evict=h2o,ratio=3.5,sink=16,recent=96,trigger=384,every=16,ema=0.9"}) {
    EXPECT_EQ(PrintPlan(*ParsePlan(text)), text);
  }
  EXPECT_EQ(PrintPlan(*ParsePlan("kv=q8_0")), "q8_0");
  EXPECT_EQ(PrintPlan(*ParsePlan("k=f16,v=f16")), "f16");
  EXPECT_EQ(PrintPlan(*ParsePlan("0-: open=3")), "open=3");
  EXPECT_EQ(PrintPlan(*ParsePlan("idle_v=t3,t4,idle_k=t3")), "t4,idle=t3");
  EXPECT_EQ(PrintPlanJson(*ParsePlan("t4,idle_k=t3,idle_v=t2")),
            R"({"kv":"t4","idle_k":"t3","idle_v":"t2"})");
}

TEST(PlanRoundTrip, NormalizeAcceptsWhatTheGrammarCanSay) {
  Plan plan;
  plan.rules.resize(3);
  plan.rules[0].first_layer = 4;
  plan.rules[0].k = "q8_0";
  plan.rules[1].last_layer = 2;
  plan.rules[1].v = "q4_0";
  plan.rules[2].first_layer = 3;  // says nothing
  plan.rules[2].last_layer = 3;
  Result<Plan> normal = NormalizePlan(plan);
  ASSERT_TRUE(normal.ok()) << normal.status().message();
  EXPECT_EQ(PrintPlan(*normal), "0-2: v=q4_0; 4-: k=q8_0");
}

TEST(PlanRoundTrip, NormalizeRefusesWhatTheGrammarCannotSay) {
  const auto refuses = [](auto change) {
    Plan plan;
    plan.rules.resize(1);
    if constexpr (std::is_invocable_v<decltype(change), PlanSettings&>) {
      change(plan.settings);
    } else {
      change(plan.rules[0]);
    }
    return !NormalizePlan(plan).ok();
  };
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.k = "q9_0"; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.k = "q8_0,open=5"; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.open_tokens = -1; }));
  EXPECT_TRUE(refuses([](PlanSettings& settings) { settings.page_tokens = 48; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.age = {{"f16", 5}}; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.age = {{"f16", -1}, {"f16", -1}}; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.hot_sink_tokens = 5; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.pack = static_cast<PackingMode>(3); }));
  EXPECT_TRUE(refuses([](PlanSettings& settings) { settings.pack_threads = 65; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) { rule.codebook = ""; }));
  EXPECT_TRUE(refuses([](LayerRule& rule) {
    rule.k = "f16";
    rule.first_layer = -2;
  }));
}

}  // namespace plan_round_trip_test
}  // namespace varve
