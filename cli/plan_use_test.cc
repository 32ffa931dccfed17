#include "cli/plan_use.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve::cli {
namespace plan_use_test {

CacheShape Shape() {
  CacheShape shape;
  shape.num_layers = 2;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 64;
  return shape;
}

CacheUse Use(uint64_t codebook_bytes, uint64_t compressor_bytes = 0) {
  CacheUse use;
  use.codebook_bytes = codebook_bytes;
  use.compressor_bytes = compressor_bytes;
  return use;
}

FallbackUse Fallback() { return {0, 7, Part::kKey, "pq64x8", "q4_0r", "no codebook"}; }

TEST(PlanUse, CodebooksWeighLessTheLongerTheText) {
  const PlanUse none = MakePlanUse(*ParsePlan("f16"), Shape(), {});
  EXPECT_EQ(none.all_in_4k, 1);
  EXPECT_EQ(none.all_in_32k, 1);
  const uint64_t f16_4k = 4096u * 2 * 2 * 128 * 2;
  const PlanUse use = MakePlanUse(*ParsePlan("f16"), Shape(), Use(f16_4k));
  EXPECT_EQ(use.codebook_bytes, f16_4k);
  EXPECT_DOUBLE_EQ(use.all_in_4k, 1 / 2.0);
  EXPECT_DOUBLE_EQ(use.all_in_32k, 8 / 9.0);
}

TEST(PlanUse, ARungThatFellBackCountsAsWhatRan) {
  const CacheUse fell_back{0,
                           0,
                           {{0, 1, Part::kKey, "pq16x4", "q8_0", "no codebook"},
                            {0, 1, Part::kValue, "pq16x4", "q8_0", "no codebook"}}};
  const PlanUse q8 = MakePlanUse(*ParsePlan("q8_0"), Shape(), {});
  for (const char* plan : {"pq16x4,fallback=q8_0", "k=pq16x4,v=pq16x4,codebook=a,fallback=q8_0",
                           "age=pq16x4,fallback=q8_0"}) {
    const PlanUse use = MakePlanUse(*ParsePlan(plan), Shape(), fell_back);
    EXPECT_EQ(use.all_in_4k, q8.all_in_4k) << plan;
    EXPECT_EQ(use.all_in_32k, q8.all_in_32k) << plan;
  }
  // Only in the layers, and of the part, that it is about.
  const Plan plan = *ParsePlan("0: k=pq16x4,v=pq16x4,fallback=q8_0; 1: pq16x4,fallback=f16");
  const std::vector<FallbackUse> one = {{0, 0, Part::kKey, "pq16x4", "q8_0", ""}};
  EXPECT_EQ(PrintPlan(PlanAsRun(plan, Shape(), one)), "0: k=q8_0,v=pq16x4; 1: pq16x4");
}

TEST(PlanUse, APolicysTargetIsWhatThePlanHolds) {
  const PlanUse ratio = MakePlanUse(*ParsePlan("evict=h2o,ratio=4"), Shape(), {});
  EXPECT_DOUBLE_EQ(ratio.all_in_4k, 4);
  const PlanUse budget = MakePlanUse(*ParsePlan("evict=h2o,budget=1MiB"), Shape(), Use(1 << 20));
  EXPECT_DOUBLE_EQ(budget.all_in_4k, 2);    // 4 MiB in f16
  EXPECT_DOUBLE_EQ(budget.all_in_32k, 16);  // 32 MiB
}

TEST(PlanUse, TheKeysAreAlwaysThere) {
  nlohmann::ordered_json row;
  AddPlanUseKeys(MakePlanUse(*ParsePlan("q8_0"), Shape(), {}), &row);
  EXPECT_EQ(row["codebook_bytes"], 0);
  EXPECT_GT(row["ratio_all_in_4k"], 1.5);
  EXPECT_GT(row["ratio_all_in_32k"], 1.5);
  EXPECT_TRUE(row["fallbacks"].empty());
  AddPlanUseKeys(MakePlanUse(*ParsePlan("q8_0"), Shape(), {100, 0, {Fallback()}}), &row);
  EXPECT_EQ(row["codebook_bytes"], 100);
  EXPECT_EQ(row["fallbacks"][0]["asked"], "pq64x8");
  EXPECT_EQ(row["fallbacks"][0]["used"], "q4_0r");
  EXPECT_EQ(row["fallbacks"][0]["part"], "k");
  EXPECT_EQ(row["fallbacks"][0]["last_layer"], 7);
}

TEST(PlanUse, ACompressorIsAConstantAndLeavesTheAllInRatioOpen) {
  const PlanUse use = MakePlanUse(*ParsePlan("fold=a.bin"), Shape(), Use(5, 7));
  EXPECT_EQ(use.constant_bytes(), 12u);
  EXPECT_TRUE(std::isnan(use.all_in_4k));
  nlohmann::ordered_json row;
  AddPlanUseKeys(use, &row);
  EXPECT_EQ(row["compressor_bytes"], 7);
  EXPECT_EQ(row["codebook_bytes"], 5);
}

TEST(PlanUse, AFallbackIsALineThatSaysWhy) {
  FallbackUse use = Fallback();
  EXPECT_EQ(FallbackText(use), "layers 0-7 k: pq64x8 -> q4_0r: no codebook");
  use.last_layer = 0;
  use.part = Part::kValue;
  EXPECT_EQ(FallbackText(use), "layer 0 v: pq64x8 -> q4_0r: no codebook");
  std::FILE* file = std::tmpfile();
  PrintFallbacks("pq4", {use}, file);
  PrintFallbacks("f16", {}, file);
  std::string text(200, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, "pq4: fallback: layer 0 v: pq64x8 -> q4_0r: no codebook\n");
}

TEST(PlanUse, ColumnsComeWithTheFirstConstant) {
  std::vector<PlanUse> uses(2);
  EXPECT_FALSE(AnyConstants(uses));
  uses[1].codebook_bytes = 2048;
  uses[1].all_in_4k = 3.456;
  EXPECT_TRUE(AnyConstants(uses));
  EXPECT_EQ(PlanUseCells(uses[1]), (std::vector<std::string>{"2.00 KiB", "3.46", "-"}));
  EXPECT_EQ(PlanUseCells(uses[0])[0], "-");
  EXPECT_EQ(PlanUseHeaders().size(), PlanUseCells(uses[0]).size());
}

}  // namespace plan_use_test
}  // namespace varve::cli
