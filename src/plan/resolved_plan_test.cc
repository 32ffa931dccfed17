#include "plan/resolved_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace varve {
namespace resolved_plan_test {

CacheShape Shape(int num_layers = 4) {
  CacheShape shape;
  shape.num_layers = num_layers;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 96;
  return shape;
}

// "f16 | 0 q8_0/q4_0 | 512 q4_0/q4_0 | window 64 sink 4"
std::string Describe(const LayerForm& plan) {
  std::string text(plan.open_rung->name);
  for (const LayerForm::Stage& stage : plan.stages) {
    text += " | " + std::to_string(stage.from_age) + " " + std::string(stage.k->name) + "/" +
            std::string(stage.v->name);
  }
  if (plan.window_tokens > 0) {
    text += " | window " + std::to_string(plan.window_tokens) + " sink " +
            std::to_string(plan.sink_tokens);
  }
  return text;
}

std::string LayerZero(std::string_view text) {
  Result<ResolvedPlan> resolved = ResolvePlan(*ParsePlan(text), Shape());
  return resolved.ok() ? Describe(resolved->layers.front()) : resolved.status().message();
}

std::string ErrorOf(std::string_view text, const CacheShape& shape) {
  Result<ResolvedPlan> resolved = ResolvePlan(*ParsePlan(text), shape);
  return resolved.ok() ? "(resolved)" : resolved.status().message();
}

TEST(LayerPlan, DefaultsAreF16EverywhereFromAgeZero) {
  EXPECT_EQ(LayerZero(""), "f16 | 0 f16/f16");
  EXPECT_EQ(LayerZero("open_rung=f32"), "f32 | 0 f16/f16");
  EXPECT_EQ(LayerZero("k=q8_0"), "f16 | 0 q8_0/f16");
}

TEST(LayerPlan, RungsHoldFromTheOpenWindowOn) {
  EXPECT_EQ(LayerZero("q8_0"), "f16 | 0 q8_0/q8_0");
  EXPECT_EQ(LayerZero("k=q8_0,v=q4_0r,open=128"), "f16 | 128 q8_0/q4_0r");
}

TEST(LayerPlan, AnAgeLadderBecomesStages) {
  EXPECT_EQ(LayerZero("age=f16:512/q8_0:4096/q4_0"),
            "f16 | 0 f16/f16 | 512 q8_0/q8_0 | 4096 q4_0/q4_0");
  EXPECT_EQ(LayerZero("age=q8_0"), "f16 | 0 q8_0/q8_0");
}

TEST(LayerPlan, AFixedPartStaysWhileTheOtherFollowsTheLadder) {
  EXPECT_EQ(LayerZero("k=q8_0,age=f16:512/q4_0"), "f16 | 0 q8_0/f16 | 512 q8_0/q4_0");
  EXPECT_EQ(LayerZero("v=f32,age=f16:512/q4_0"), "f16 | 0 f16/f32 | 512 q4_0/f32");
}

TEST(LayerPlan, TheOpenWindowSwallowsYoungerStages) {
  EXPECT_EQ(LayerZero("age=f16:512/q8_0:4096/q4_0,open=100"),
            "f16 | 100 f16/f16 | 512 q8_0/q8_0 | 4096 q4_0/q4_0");
  EXPECT_EQ(LayerZero("age=f16:512/q8_0:4096/q4_0,open=512"),
            "f16 | 512 q8_0/q8_0 | 4096 q4_0/q4_0");
  EXPECT_EQ(LayerZero("age=f16:512/q8_0:4096/q4_0,open=9999"), "f16 | 9999 q4_0/q4_0");
}

TEST(LayerPlan, RungsBelowEightBitsKeepTheFirstTokensExact) {
  const auto exact = [](std::string_view text) {
    return ResolvePlan(*ParsePlan(text), Shape())->layers.front().exact_tokens;
  };
  for (const char* plan : {"", "f16", "f32", "bf16", "q8_0", "q8_0r", "age=f16:64/q8_0",
                           "k=q8_0,v=f16", "k=pq64x8,v=q8_0"}) {
    EXPECT_EQ(exact(plan), 0) << plan;
  }
  for (const char* plan : {"q4_0", "q4_0r", "k=q4_0", "v=q4_0r", "k=pq32x8", "pq4", "pq2",
                           "age=f16:64/q8_0:4096/q4_0", "evict=demote"}) {
    EXPECT_EQ(exact(plan), 64) << plan;
    EXPECT_EQ(exact(std::string(plan) + ",exact=0"), 0) << plan;
    EXPECT_EQ(exact(std::string(plan) + ",exact=200"), 200) << plan;
  }
  EXPECT_EQ(exact("q8_0,exact=32"), 32);
}

TEST(LayerPlan, EqualNeighboursAreOneStage) {
  EXPECT_EQ(LayerZero("age=q8_0:512/q8_0:1024/q4_0"), "f16 | 0 q8_0/q8_0 | 1024 q4_0/q4_0");
}

TEST(LayerPlan, IdleIsTheLastStageAndNoAgeBringsIt) {
  const std::string never = std::to_string(LayerForm::kNeverByAge);
  EXPECT_EQ(LayerZero("t4,idle=t3"), "f16 | 0 t4/t4 | " + never + " t3/t3");
  EXPECT_EQ(LayerZero("t4,idle_k=t3,idle_v=t2"), "f16 | 0 t4/t4 | " + never + " t3/t2");
  // A part that is not said keeps its last rung.
  EXPECT_EQ(LayerZero("age=f16:512/q8_0,idle_v=t2"),
            "f16 | 0 f16/f16 | 512 q8_0/q8_0 | " + never + " q8_0/t2");
  const auto plan = ResolvePlan(*ParsePlan("0: t4; 1-: f16,idle=t3"), Shape())->layers;
  EXPECT_EQ(plan[0].rest_stage, -1);
  EXPECT_EQ(plan[1].rest_stage, 1);
  EXPECT_EQ(plan[1].exact_tokens, 64);
  EXPECT_EQ(plan[1].StageAt(int64_t{1} << 59), &plan[1].stages[0]);
}

TEST(LayerPlan, WindowAndSink) {
  EXPECT_EQ(LayerZero("q8_0,window=64,sink=4"), "f16 | 0 q8_0/q8_0 | window 64 sink 4");
  EXPECT_EQ(LayerZero("window=64"), "f16 | 0 f16/f16 | window 64 sink 0");
}

TEST(LayerPlan, StageAtFollowsTheBounds) {
  const std::vector<LayerForm> layers =
      ResolvePlan(*ParsePlan("age=f16:512/q8_0,open=64"), Shape())->layers;
  const LayerForm& plan = layers[0];
  EXPECT_EQ(plan.StageAt(0), nullptr);
  EXPECT_EQ(plan.StageAt(63), nullptr);
  EXPECT_EQ(plan.StageAt(64), &plan.stages[0]);
  EXPECT_EQ(plan.StageAt(511), &plan.stages[0]);
  EXPECT_EQ(plan.StageAt(512), &plan.stages[1]);
  EXPECT_EQ(plan.StageAt(1'000'000), &plan.stages[1]);
}

TEST(LayerPlan, RulesReachTheirLayersAndNoOther) {
  Result<ResolvedPlan> resolved = ResolvePlan(*ParsePlan("1: q8_0; 3-: q4_0"), Shape(6));
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  const std::vector<LayerForm>& layers = resolved->layers;
  const char* expected[] = {"f16", "q8_0", "f16", "q4_0", "q4_0", "q4_0"};
  ASSERT_EQ(layers.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(layers[i].stages[0].k->name, expected[i]) << i;
}

TEST(LayerPlanError, NamesLayerClauseAndLimit) {
  CacheShape shape = Shape();
  shape.page_tokens = 64;
  const std::pair<const char*, const char*> cases[] = {
      {"0-4: q8_0", "plan: layers 0-4: layer 4 > 3, the model's last"},
      {"4-: q8_0", "plan: layers 4-: layer 4 > 3, the model's last"},
      {"page=32", "plan: layers 0-, clause \"page=32\": differs from page_tokens 64 of the shape"},
      {"sink=4", "plan: layers 0-, clause \"sink=4\": sink= requires window= or evict="},
      {"window=64,open=65", "plan: layers 0-, clause \"open=65\": 65 > window 64"},
      {"cross=f16",
       "plan: clause \"cross=f16\": is for the encoder's rows of a speech model (varve "
       "transcribe); this cache has none"},
      {"recent=64", "plan: layers 0-, clause \"recent=64\": recent= requires evict="},
      {"2-: ratio=3", "plan: layers 2-, clause \"ratio=3\": ratio= requires evict="},
      {"budget=1MiB", "plan: layers 0-, clause \"budget=1MiB\": budget= requires evict="},
      {"trigger=8", "plan: layers 0-, clause \"trigger=8\": trigger= requires evict="},
      {"every=8", "plan: layers 0-, clause \"every=8\": every= requires evict="},
      {"ema=0.5", "plan: layers 0-, clause \"ema=0.5\": ema= requires evict="},
      {"2-4: evict=h2o", "plan: layers 2-4: layer 4 > 3, the model's last"},
      {"t3,idle=t4",
       "plan: layers 0-, clause \"idle=t4\": t4 takes 4.5 bits a value, t3 of sealed k takes 3.5; "
       "name a lower rung"},
      {"1: k=t3,v=t4,idle_k=t2,idle_v=q8_0",
       "plan: layers 1, clause \"idle_v=q8_0\": q8_0 takes 8.5 bits a value, t4 of sealed v takes "
       "4.17; name a lower rung"},
      {"t4,idle=t4",
       "plan: layers 0-: idle= is t4 and t4, as sealed pages are; name a lower rung, or leave it "
       "out"},
      {"7: evict=h2o", "plan: layers 7: layer 7 > 3, the model's last"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(ErrorOf(text, shape), message) << text;
}

TEST(LayerPlanError, ARungThatCannotStoreTheDimensionNamesThePart) {
  CacheShape shape = Shape();
  shape.value_dim = 80;
  EXPECT_EQ(ErrorOf("bf16", shape), "(resolved)");
  EXPECT_EQ(ErrorOf("k=q8_0", shape), "(resolved)");
  const std::string fixed = ErrorOf("2-: q8_0", shape);
  EXPECT_TRUE(fixed.starts_with("plan: layers 2-, clause \"v=q8_0\": v: ")) << fixed;
  EXPECT_NE(fixed.find("80"), std::string::npos) << fixed;
  const std::string by_age = ErrorOf("age=f16:64/q4_0", shape);
  EXPECT_TRUE(by_age.starts_with("plan: layers 0-, clause \"age=f16:64/q4_0\": v: ")) << by_age;
}

TEST(LayerPlan, SampledLayersAreSpreadOverTheRule) {
  const auto packed = [](const char* text) {
    const ResolvedPlan plan = *ResolvePlan(*ParsePlan(text), Shape(10));
    std::string layers;
    for (const LayerForm& layer : plan.layers) layers += layer.pack ? 'x' : '.';
    return layers;
  };
  EXPECT_EQ(packed("2-: pack=probe"), "..xxxxxxxx");
  EXPECT_EQ(packed("2-: pack=probe,sample_layers=1"), "......x...");
  EXPECT_EQ(packed("2-: pack=probe,sample_layers=2"), "....x...x.");
  EXPECT_EQ(packed("2-: pack=probe,sample_layers=8"), "..xxxxxxxx");
  EXPECT_EQ(packed("0-1: pack=probe; 2-: pack=probe,sample_layers=100"), "xxxxxxxxxx");
  EXPECT_EQ(packed("0-1: pack=probe,sample_layers=1"), ".x........");
}

TEST(LayerPlan, BlocksOfPackingAreWholePages) {
  const auto block = [](const char* text, size_t notes) {
    const ResolvedPlan plan = *ResolvePlan(*ParsePlan(text), Shape(1));
    EXPECT_EQ(plan.notes.size(), notes) << text;
    return plan.layers[0].pack->block_tokens;
  };
  EXPECT_EQ(block("pack=store", 0), 64);
  EXPECT_EQ(block("pack=store,pack_block=128", 0), 128);
  EXPECT_EQ(block("pack=store,pack_block=100", 1), 128);
  EXPECT_EQ(block("pack=store,pack_block=1,page=16", 1), 16);
}

TEST(LayerPlanError, ClausesOfPackingNeedTheirMode) {
  EXPECT_NE(
      ErrorOf("pack=store,sample_layers=1", Shape()).find("sample_layers= requires pack=probe"),
      std::string::npos);
  EXPECT_NE(ErrorOf("pack=probe,layer_cache=1", Shape()).find("layer_cache= requires pack=store"),
            std::string::npos);
  EXPECT_NE(ErrorOf("pack=store,predictors_k=raw", Shape())
                .find("predictors_k= requires pack_codec=gear"),
            std::string::npos);
  EXPECT_NE(ErrorOf("q8_0,log_stats=1", Shape()).find("log_stats= requires evict= or pack="),
            std::string::npos);
}

TEST(LayerPlanError, APlanBuiltByHandIsCheckedToo) {
  Plan plan;
  plan.rules.resize(1);
  plan.rules[0].k = "q9_0";
  EXPECT_EQ(ResolvePlan(plan, Shape()).status().code(), StatusCode::kInvalidArgument);
  plan.rules[0].k = "q8_0";
  plan.rules[0].window_tokens = 0;
  EXPECT_EQ(ResolvePlan(plan, Shape()).status().code(), StatusCode::kInvalidArgument);
  plan.rules[0].window_tokens = 1;
  EXPECT_TRUE(ResolvePlan(plan, Shape()).ok());
}

TEST(LayerPlanError, AShapeWithoutLayersIsRefused) {
  EXPECT_EQ(ErrorOf("f16", Shape(0)), "shape: num_layers 0 is not within 1 and 1024");
  EXPECT_EQ(ErrorOf("f16", Shape(1025)), "shape: num_layers 1025 is not within 1 and 1024");
}

}  // namespace resolved_plan_test
}  // namespace varve
