#include "runtime/solve/plan_space.h"

#include <gtest/gtest.h>

namespace varve {
namespace plan_space_test {

constexpr CacheShape kShape{.num_layers = 6, .num_kv_heads = 2, .key_dim = 64, .value_dim = 64};

PlanSpace MakeSpace(double table_bytes = 0) {
  return PlanSpace(kShape, PlanResources(), {"f16", "q8_0", "q4_0"}, 1000, table_bytes);
}

TEST(PlanSpace, BytesOfLayersAddUpToThoseOfThePlan) {
  const PlanSpace space = MakeSpace();
  const ExactTokens exact{64, 128};
  const auto bytes = space.LayerBytes(exact);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  ASSERT_EQ(bytes->size(), space.num_pairs());
  const std::vector<int> pairs = {0, 4, 4, 8, 5, 1};
  const auto plan = space.MakePlan(pairs, exact);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  uint64_t sum = 0;
  for (const int pair : pairs) sum += (*bytes)[static_cast<size_t>(pair)];
  EXPECT_EQ(EstimatePlan(*plan, kShape, PlanResources(), 1000)->bytes, sum);
  EXPECT_EQ(space.f16_bytes(), 1000u * 6 * 2 * 128 * 2);
}

TEST(PlanSpace, TablesOfPagesCount) {
  const auto without = MakeSpace().LayerBytes({});
  const auto with = MakeSpace(100).LayerBytes({});
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ((*with)[4] - (*without)[4], 1600u);  // 16 pages of 64 hold 1000 tokens
}

TEST(PlanSpace, NeighboursWithTheSameRungsAreOneRule) {
  const PlanSpace space = MakeSpace();
  const auto plan = space.MakePlan(std::vector<int>{4, 4, 5, 5, 5, 0}, {64, 128});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->rules.size(), 3u);
  EXPECT_EQ(plan->rules[0].k, "q8_0");
  EXPECT_EQ(plan->rules[1].v, "q4_0");
  EXPECT_EQ(plan->rules[1].first_layer, 2);
  EXPECT_EQ(plan->rules[1].last_layer, 4);
  EXPECT_EQ(plan->rules[1].open_tokens, 128);
  EXPECT_EQ(space.MakePlan(std::vector<int>{0, 1}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(PlanSpace, APlanComesBackFromItsJson) {
  const PlanSpace space = MakeSpace();
  const auto plan = space.MakePlan(std::vector<int>{4, 1, 5, 5, 2, 0}, {64, 128});
  ASSERT_TRUE(plan.ok());
  const auto read = ParsePlanJson(PrintPlanJson(*plan));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(*read == *plan);
}

TEST(PlanSpace, PairsAreOnePairOfRungsEach) {
  const PlanSpace space = MakeSpace();
  for (size_t pair = 0; pair < space.num_pairs(); ++pair) {
    EXPECT_EQ(space.PairOf(space.KeyRung(pair), space.ValueRung(pair)), pair);
  }
  const auto plan = space.UniformPlan(space.PairOf(1, 2), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->rules[0].k, "q8_0");
  EXPECT_EQ(plan->rules[0].v, "q4_0");
}

}  // namespace plan_space_test
}  // namespace varve
