#include "plan/plan_h2o_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "varve/plan.h"

namespace varve {
namespace plan_h2o_keys_test {

std::string Text(std::string_view json) {
  Result<Plan> plan = ParsePlanJson(json);
  return plan.ok() ? PrintPlan(*plan) : plan.status().message();
}

TEST(PlanH2oKeys, EvictionKeysBecomeClauses) {
  const std::pair<const char*, const char*> cases[] = {
      // The system's own defaults where they differ from ours: layers from 2 on, ratio 3.
      {R"({"kv_h2o_enable": true})", "2-: evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": true, "kv_h2o_layer_start": 0})", "evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": true, "kv_h2o_layer_start": 4, "kv_h2o_layer_end": 7})",
       "4-7: evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": true, "kv_h2o_block_tokens": 32})", "2-: page=32,evict=h2o,ratio=3"},
      {R"({"kv_h2o_enable": true, "kv_h2o_sink_tokens": 16, "kv_h2o_recent_tokens": 96})",
       "2-: evict=h2o,ratio=3,sink=16,recent=96"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_lossy_ratio": 3.5})", "2-: evict=h2o,ratio=3.5"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_mode": "static"})", "2-: evict=h2o,ratio=2"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_mode": "static", "kv_h2o_target_keep_ratio": 0.25})",
       "2-: evict=h2o,ratio=4"},
      {R"({"kv_h2o_enable": true, "kv_h2o_ema_alpha": 0.5, "kv_h2o_update_interval": 8,
           "kv_h2o_trigger_min_tokens": 384})",
       "2-: evict=h2o,ratio=3,trigger=384,every=8,ema=0.5"},
      {R"({"kv_h2o_enable": true, "kv_h2o_log_stats": true})", "2-: evict=h2o,ratio=3,log_stats=1"},
      {R"({"kv_h2o_enable": false, "kv_h2o_sink_tokens": 16})", ""},
      {R"({"kv_h2o_sink_tokens": 16})", ""},
  };
  for (const auto& [json, text] : cases) EXPECT_EQ(Text(json), text) << json;
}

// What every packed layer says because the system's defaults are not ours.
const char* const kOn =
    R"({"kv_lossless_enable": true, "kv_lossless_runtime_enable": true,
        "kv_lossless_codec": "gear_delta")";
const std::string kFront = "pack=probe,pack_codec=gear,pack_block=128,strict=0";
const std::string kKept = kFront + ",sample_layers=1";

TEST(PlanH2oKeys, LosslessKeysBecomeClauses) {
  const std::string on = kOn;
  const std::string rest = ",pack_codec=gear,pack_block=128,strict=0";
  EXPECT_EQ(Text(on + "}"), "0-1: " + kFront);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_runtime_mode": "full"})"), "0-1: pack=full" + rest);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_runtime_mode": "store"})"),
            "0-1: pack=store" + rest + ",layer_cache=128");
  EXPECT_EQ(Text(on + R"(, "kv_lossless_front_n": 4})"), "0-3: " + kFront);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_hot_sink_tokens": 8})"),
            "0-1: pack=probe,hot=8/256" + rest);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_hot_recent_tokens": 8})"),
            "0-1: pack=probe,hot=16/8" + rest);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_store_bootstrap_tokens": 16,
                          "kv_lossless_store_grouped_step_tokens": 384})"),
            "0-1: pack=probe,bootstrap=16,step=384" + rest);
  EXPECT_EQ(Text(on + R"(, "kv_lossless_block_tokens": 48})"),
            "0-1: pack=probe,pack_codec=gear,pack_block=48,strict=0");
  EXPECT_EQ(Text(on + R"(, "kv_lossless_strict_roundtrip_check": true})"),
            "0-1: pack=probe,pack_codec=gear,pack_block=128,strict=1");
  EXPECT_EQ(Text(on + R"(, "kv_lossless_log_stats": true})"), "0-1: " + kFront + ",log_stats=1");
  EXPECT_EQ(Text(on + R"(, "kv_lossless_front_sample_token_interval": 256})"),
            "0-1: " + kFront + ",sample_every=256");
  EXPECT_EQ(Text(R"({"kv_lossless_enable": true, "kv_lossless_codec": "gear_delta"})"), "");
  EXPECT_EQ(Text(R"({"kv_lossless_runtime_enable": true, "kv_lossless_codec": "gear_delta"})"), "");
  EXPECT_EQ(Text(R"({"kv_lossless_enable": true, "kv_lossless_runtime_enable": true})"), "")
      << "no codec is none";
}

TEST(PlanH2oKeys, PredictorsAreNamesWithCommasOrAList) {
  const std::string on = kOn;
  EXPECT_EQ(Text(on + R"(, "kv_lossless_predictors_k": "raw, delta_seq",
                          "kv_lossless_predictors_v": ["xor_seq", "pair_delta"]})"),
            "0-1: pack=probe,pack_codec=gear,predictors_k=raw/delta_seq,"
            "predictors_v=xor_seq/pair_delta,pack_block=128,strict=0");
  EXPECT_NE(Text(on + R"(, "kv_lossless_predictors_k": "raw,zip"})")
                .find(R"(key "kv_lossless_predictors_k": unknown predictors_k "zip")"),
            std::string::npos);
  EXPECT_NE(Text(on + R"(, "kv_lossless_predictors_k": "raw,raw"})").find("says a word twice"),
            std::string::npos);
  EXPECT_NE(Text(on + R"(, "kv_lossless_predictors_k": 3})").find("names with commas"),
            std::string::npos);
}

TEST(PlanH2oKeys, ScopeChoosesTheLayersThatArePacked) {
  const std::string both = std::string(kOn) + R"(, "kv_h2o_enable": true, "kv_lossless_scope": )";
  const std::string front = "0-1: " + kFront + "; 2-: evict=h2o,ratio=3";
  const std::string kept = "2-: evict=h2o,ratio=3," + kKept;
  const std::string all = "0-1: " + kFront + "; 2-: evict=h2o,ratio=3," + kKept;
  EXPECT_EQ(Text(both + "\"front_n\"}"), front);
  EXPECT_EQ(Text(both + "1}"), front);
  EXPECT_EQ(Text(both + "\"h2o_kept\"}"), kept);
  EXPECT_EQ(Text(both + "2}"), kept);
  EXPECT_EQ(Text(both + "\"front_n_and_h2o_kept\"}"), all);
  EXPECT_EQ(Text(both + "3}"), all);
  EXPECT_EQ(Text(both + R"(1, "kv_h2o_layer_start": 1})"),
            "0: " + kFront + "; 1: evict=h2o,ratio=3," + kFront + "; 2-: evict=h2o,ratio=3");
  EXPECT_EQ(Text(both + R"(2, "kv_lossless_kept_sample_layers": 3,
                          "kv_lossless_kept_sample_token_interval": 512})"),
            "2-: evict=h2o,ratio=3," + kFront + ",sample_layers=3,sample_every=512");
}

TEST(PlanH2oKeys, NoRuleStartsBehindTheLastLayer) {
  const std::string pack = std::string(kOn).substr(1);
  const std::pair<std::string, std::string> cases[] = {
      {R"({"kv": "q8_0", "kv_h2o_enable": true, "kv_h2o_layer_end": 1023})",
       "0-1: q8_0; 2-: q8_0,evict=h2o,ratio=3"},
      {R"({"kv": "q8_0", "kv_h2o_enable": true, "kv_h2o_layer_end": 1022})",
       "0-1: q8_0; 2-1022: q8_0,evict=h2o,ratio=3; 1023-: q8_0"},
      {R"({"kv": "q8_0", "kv_lossless_front_n": 1024, )" + pack + "}", "q8_0," + kFront},
      {R"({"kv": "q8_0", "kv_lossless_front_n": 1023, )" + pack + "}",
       "0-1022: q8_0," + kFront + "; 1023-: q8_0"},
  };
  for (const auto& [json, text] : cases) {
    EXPECT_EQ(Text(json), text) << json;
    EXPECT_TRUE(ParsePlan(text).ok() && PrintPlan(*ParsePlan(text)) == text) << text;
  }
}

TEST(PlanH2oKeys, OwnClausesHoldForAllLayersBesideThem) {
  EXPECT_EQ(Text(R"({"k": "q8_0", "kv_h2o_enable": true})"),
            "0-1: k=q8_0; 2-: k=q8_0,evict=h2o,ratio=3");
  EXPECT_EQ(Text(R"({"sink": 4, "kv_h2o_enable": true, "kv_h2o_sink_tokens": 8})"),
            "plan: key \"kv_h2o_sink_tokens\": repeats key \"sink\"");
  EXPECT_EQ(Text(R"({"budget": 4, "kv_h2o_enable": true})"),
            "plan: key \"kv_h2o_target_lossy_ratio\": conflicts with key \"budget\": both set the "
            "memory to aim at");
}

TEST(PlanH2oKeys, WorkersQueueAndDecodeCacheBecomeClauses) {
  const std::string on = kOn;
  // Five blocks of two pages each, of every layer.
  EXPECT_EQ(Text(on + R"(, "kv_lossless_runtime_mode": "store", "kv_lossless_async_threads": 2,
                         "kv_lossless_max_queue": 8, "kv_lossless_decode_cache_blocks": 5})"),
            "0-1: pack=store,pack_codec=gear,pack_block=128,strict=0,layer_cache=10,"
            "pack_threads=2,pack_queue=8");
  EXPECT_NE(Text(on + R"(, "kv_lossless_runtime_mode": "store",
                         "kv_lossless_decode_cache_blocks": -1})")
                .find("value -1 is not within 0 and 65536"),
            std::string::npos);
  EXPECT_EQ(Text(R"({"kv_lossless_codec": "none"})"), "");
  EXPECT_EQ(Text(R"({"kv_lossless_codec": "lzma"})"),
            "plan: key \"kv_lossless_codec\": unknown codec \"lzma\"; known: none gear_delta");
}

TEST(PlanH2oKeys, BadValuesNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kv_h2o_speed": 1})", R"(plan: key "kv_h2o_speed": unknown key)"},
      {R"({"kv_h2o_enable": 1})", R"(plan: key "kv_h2o_enable": value "1" is not true or false)"},
      {R"({"kv_h2o_sink_tokens": "x"})",
       R"(key "kv_h2o_sink_tokens": value ""x"" is not an integer)"},
      {R"({"kv_h2o_enable": true, "kv_h2o_sink_tokens": -1})", R"(sink_tokens": sink -1 < 0)"},
      {R"({"kv_h2o_enable": true, "kv_h2o_block_tokens": 48})", "page 48 is none of"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_mode": "fast"})", "unknown mode \"fast\""},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_mode": "static", "kv_h2o_target_keep_ratio": 1})",
       "value 1 must be > 0 and < 1"},
      {R"({"kv_h2o_enable": true, "kv_h2o_target_lossy_ratio": 0.5})", "ratio 0.5 must be > 1"},
      {R"({"kv_h2o_enable": true, "kv_h2o_layer_start": -1})", "value -1 < 0"},
      {R"({"kv_h2o_enable": true, "kv_h2o_layer_end": 1})", "value 1 < kv_h2o_layer_start 2"},
      {R"({"kv_lossless_scope": 4})", R"(key "kv_lossless_scope": value 4 > 3)"},
      {R"({"kv_lossless_scope": "all"})",
       "unknown scope \"all\"; known: front_n h2o_kept front_n_and"},
      {R"({"kv_lossless_enable": true, "kv_lossless_runtime_enable": true,
           "kv_lossless_codec": "gear_delta", "kv_lossless_scope": 2})",
       "h2o_kept needs kv_h2o_enable"},
      {R"({"kv_lossless_enable": true, "kv_lossless_runtime_enable": true,
           "kv_lossless_codec": "gear_delta", "kv_lossless_runtime_mode": "zip"})",
       "unknown pack \"zip\""},
      {R"({"layers": "0", "kv_h2o_enable": true})", R"(key "layers": conflicts with kv_h2o_*)"},
      {R"({"rules": [{"kv_h2o_enable": true}]})", "stand in a flat object"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_NE(Text(json).find(message), std::string::npos) << json << " gave " << Text(json);
  }
}

}  // namespace plan_h2o_keys_test
}  // namespace varve
