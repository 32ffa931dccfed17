#include "retention/retention.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace varve {
namespace retention_test {

constexpr int64_t kPage = 16;
constexpr uint64_t kBytes = 1000;

// Complete pages from position 0 on, one per worth.
std::vector<PageStat> Pages(const std::vector<double>& worths) {
  std::vector<PageStat> pages;
  for (double worth : worths) {
    PageStat page;
    page.first_position = static_cast<int64_t>(pages.size()) * kPage;
    page.end_position = page.first_position + kPage;
    page.live_rows = kPage;
    page.bytes = kBytes;
    page.worth = worth;
    pages.push_back(page);
  }
  return pages;
}

RetentionRule Rule(RetentionPolicy policy, int64_t sink, int64_t recent) {
  RetentionRule rule;
  rule.policy = policy;
  rule.sink_tokens = sink;
  rule.recent_tokens = recent;
  return rule;
}

// The target holds `pages_held` whole pages and the spans of any plan.
LayerState StateOf(const std::vector<PageStat>& pages, uint64_t pages_held) {
  LayerState state;
  state.pages = pages;
  state.next_position = pages.empty() ? 0 : pages.back().end_position;
  state.f16_row_bytes = kBytes / kPage;
  state.target_bytes = pages_held * kBytes + pages.size() * sizeof(TokenSpan);
  return state;
}

// "K" kept, "d" dropped, a digit for a lower level.
std::string Fates(const std::vector<PageStat>& pages, const RetentionPlan& plan) {
  std::string text;
  for (size_t i = 0; i < pages.size(); ++i) {
    text += plan.levels[i] == kDropPage        ? "d"
            : plan.levels[i] == pages[i].level ? "K"
                                               : std::to_string(plan.levels[i]);
  }
  return text;
}

TEST(Retention, NamesOfPolicies) {
  EXPECT_EQ(*ParseRetentionPolicy("h2o"), RetentionPolicy::kH2o);
  EXPECT_EQ(*ParseRetentionPolicy("demote"), RetentionPolicy::kDemote);
  EXPECT_EQ(ParseRetentionPolicy("h3o").status().message(),
            "evict \"h3o\": unknown policy; known: h2o window random tova snapkv demote");
  EXPECT_FALSE(NeedsMass(RetentionPolicy::kWindow));
  EXPECT_FALSE(NeedsMass(RetentionPolicy::kRandom));
  EXPECT_TRUE(NeedsMass(RetentionPolicy::kDemote));
}

TEST(Retention, PlansAreMadeAtMultiplesOfEveryFromTheTriggerOn) {
  RetentionRule rule;
  rule.trigger_tokens = 100;
  rule.every_tokens = 16;
  EXPECT_EQ(NextPlanPosition(rule, 0), 112);
  EXPECT_EQ(NextPlanPosition(rule, 112), 112);
  EXPECT_EQ(NextPlanPosition(rule, 113), 128);
  rule.trigger_tokens = 96;  // exactly the trigger
  EXPECT_EQ(NextPlanPosition(rule, 95), 96);
  EXPECT_EQ(NextPlanPosition(rule, 96), 96);
  EXPECT_EQ(NextPlanPosition(rule, 97), 112);
  rule.trigger_tokens = 0;
  rule.every_tokens = 1;
  EXPECT_EQ(NextPlanPosition(rule, 0), 0);
  EXPECT_EQ(NextPlanPosition(rule, 7), 7);
  for (int64_t every : {1, 3, 16, 17}) {
    rule.every_tokens = every;
    rule.trigger_tokens = 50;
    for (int64_t position = 0; position < 200; ++position) {
      const int64_t next = NextPlanPosition(rule, position);
      EXPECT_EQ(next % every, 0);
      EXPECT_GE(next, std::max<int64_t>(position, 50));
      EXPECT_LT(next, std::max<int64_t>(position, 50) + every);
    }
  }
}

TEST(Retention, KeepsTheFloorsAndThenTheWorthiest) {
  const std::vector<PageStat> pages = Pages({0, .1, .5, .2, .4, .3, 0, 0});
  const RetentionPlan plan = PlanRetention(Rule(RetentionPolicy::kH2o, 1, 17), StateOf(pages, 5));
  EXPECT_EQ(Fates(pages, plan), "KdKdKdKK");
  EXPECT_EQ(plan.kept, (std::vector<TokenSpan>{{0, 16}, {32, 16}, {64, 16}, {96, 32}}));
  EXPECT_EQ(plan.kept_tokens, 80);
  EXPECT_EQ(plan.dropped_tokens, 48);
  EXPECT_EQ(plan.floor_tokens, 48);
  EXPECT_EQ(plan.floor_bytes, 3 * kBytes);
  EXPECT_EQ(plan.planned_bytes, 5 * kBytes + 4 * sizeof(TokenSpan));
  EXPECT_FALSE(plan.floors_bind);
  EXPECT_TRUE(plan.changes);
  EXPECT_DOUBLE_EQ(plan.kept_part, 80.0 / 128);
}

TEST(Retention, AFloorIsEveryPageThatTouchesIt) {
  const std::vector<PageStat> pages = Pages(std::vector<double>(8, 0.1));
  const auto fates = [&](int64_t sink, int64_t recent) {
    return Fates(pages,
                 PlanRetention(Rule(RetentionPolicy::kH2o, sink, recent), StateOf(pages, 0)));
  };
  EXPECT_EQ(fates(0, 0), "dddddddd");
  EXPECT_EQ(fates(1, 1), "KddddddK");
  EXPECT_EQ(fates(16, 16), "KddddddK");
  EXPECT_EQ(fates(17, 17), "KKddddKK");
  EXPECT_EQ(fates(64, 64), "KKKKKKKK");  // sink + recent = length
  EXPECT_EQ(fates(100, 100), "KKKKKKKK");
  EXPECT_EQ(fates(0, int64_t{1} << 40), "KKKKKKKK");
}

TEST(Retention, ThePageThatGrowsIsAFloor) {
  std::vector<PageStat> pages = Pages({.3, .2, 0});
  pages.back().complete = false;
  pages.back().end_position -= 10;
  const RetentionPlan plan = PlanRetention(Rule(RetentionPolicy::kH2o, 0, 0), StateOf(pages, 0));
  EXPECT_EQ(Fates(pages, plan), "ddK");
  EXPECT_EQ(plan.floor_tokens, 6);
  EXPECT_TRUE(plan.floors_bind);
}

TEST(Retention, EqualWorthKeepsTheYoungerPages) {
  const std::vector<PageStat> pages = Pages({.2, .2, .2, .2, .2, .2});
  EXPECT_EQ(Fates(pages, PlanRetention(Rule(RetentionPolicy::kH2o, 0, 0), StateOf(pages, 2))),
            "ddddKK");
}

TEST(Retention, NothingAndOnePage) {
  const std::vector<PageStat> none;
  RetentionPlan plan = PlanRetention(Rule(RetentionPolicy::kH2o, 4, 4), StateOf(none, 0));
  EXPECT_FALSE(plan.changes);
  EXPECT_TRUE(plan.levels.empty());
  EXPECT_TRUE(plan.kept.empty());
  EXPECT_EQ(plan.kept_tokens, 0);

  const std::vector<PageStat> one = Pages({.5});
  plan = PlanRetention(Rule(RetentionPolicy::kH2o, 4, 4), StateOf(one, 0));
  EXPECT_EQ(Fates(one, plan), "K");
  EXPECT_TRUE(plan.floors_bind);
  EXPECT_FALSE(plan.changes);
  plan = PlanRetention(Rule(RetentionPolicy::kH2o, 0, 0), StateOf(one, 1));
  EXPECT_EQ(Fates(one, plan), "K");
  EXPECT_FALSE(plan.floors_bind);
  plan = PlanRetention(Rule(RetentionPolicy::kH2o, 0, 0), StateOf(one, 0));
  EXPECT_EQ(Fates(one, plan), "d");
}

TEST(Retention, PagesToComeAreLeftRoom) {
  const std::vector<PageStat> pages = Pages({.5, .4, .3, .2});
  LayerState state = StateOf(pages, 3);
  state.upcoming_bytes = kBytes;
  const RetentionPlan plan = PlanRetention(Rule(RetentionPolicy::kH2o, 0, 0), state);
  EXPECT_EQ(Fates(pages, plan), "KKdd");
  EXPECT_LE(plan.planned_bytes, state.target_bytes);
}

TEST(Retention, WindowRanksByPositionAndRandomByNeither) {
  PageStat old_page, young_page;
  young_page.first_position = 640;
  const auto worth = [](RetentionPolicy policy, int layer, const PageStat& page) {
    return PageWorth(policy, layer, page, 0.25, 0.5, 0.75);
  };
  EXPECT_LT(worth(RetentionPolicy::kWindow, 0, old_page),
            worth(RetentionPolicy::kWindow, 0, young_page));
  EXPECT_EQ(worth(RetentionPolicy::kH2o, 0, old_page), 0.25);
  EXPECT_EQ(worth(RetentionPolicy::kDemote, 0, old_page), 0.25);
  EXPECT_EQ(worth(RetentionPolicy::kTova, 0, old_page), 0.5);
  EXPECT_EQ(worth(RetentionPolicy::kSnapKv, 0, old_page), 0.75);
  EXPECT_EQ(PageWorth(RetentionPolicy::kSnapKv, 0, old_page, 0.25, 0.5, -1), 0.25);
  // A number of its own for each page and layer, the same at every call.
  EXPECT_NE(worth(RetentionPolicy::kRandom, 0, old_page),
            worth(RetentionPolicy::kRandom, 0, young_page));
  EXPECT_NE(worth(RetentionPolicy::kRandom, 0, old_page),
            worth(RetentionPolicy::kRandom, 1, old_page));
  EXPECT_EQ(worth(RetentionPolicy::kRandom, 3, young_page),
            worth(RetentionPolicy::kRandom, 3, young_page));
  int ascents = 0;
  PageStat left, right;
  for (int i = 0; i < 1000; ++i) {
    left.first_position = 16 * i;
    right.first_position = 16 * (i + 1);
    ascents += worth(RetentionPolicy::kRandom, 2, left) < worth(RetentionPolicy::kRandom, 2, right);
  }
  EXPECT_NEAR(ascents, 500, 50);
}

RetentionRule DemoteRule() {
  RetentionRule rule = Rule(RetentionPolicy::kDemote, 0, 0);
  rule.levels = {{1000, 0.0}, {500, 0.01}, {250, 0.1}};
  return rule;
}

TEST(RetentionDemote, SinksTheLeastWorthyFirstAndNoFurtherThanNeeded) {
  const std::vector<PageStat> pages = Pages({.4, .1, .2, .3});
  const auto fates = [&](uint64_t target) {
    LayerState state = StateOf(pages, 0);
    state.target_bytes += target;
    return Fates(pages, PlanRetention(DemoteRule(), state));
  };
  EXPECT_EQ(fates(4000), "KKKK");
  EXPECT_EQ(fates(3999), "K1KK");
  EXPECT_EQ(fates(3500), "K1KK");
  EXPECT_EQ(fates(3499), "K11K");
  EXPECT_EQ(fates(0), "dddd");
}

TEST(RetentionDemote, TakesStepsInOrderOfCostPerByte) {
  // Per byte, of a page of mass m: level 1 costs m^2 * 0.01 / 500, level 2 after it m^2 * 0.09 /
  // 250, dropping after that m^2 * 0.9 / 250. With the mean of .55 the masses are 1.55 and .65.
  const std::vector<PageStat> pages = Pages({1.0, 0.1});
  const auto fates = [&](uint64_t target) {
    LayerState state = StateOf(pages, 0);
    state.target_bytes += target;
    return Fates(pages, PlanRetention(DemoteRule(), state));
  };
  EXPECT_EQ(fates(1999), "K1");  // 8.5e-6
  EXPECT_EQ(fates(1499), "11");  // 4.8e-5
  EXPECT_EQ(fates(999), "12");   // 1.5e-4
  EXPECT_EQ(fates(749), "22");   // 8.6e-4
  EXPECT_EQ(fates(499), "2d");   // 1.5e-3
  EXPECT_EQ(fates(249), "dd");
}

TEST(RetentionDemote, OfEqualPagesTheOldestSinkFirst) {
  const std::vector<PageStat> pages = Pages({.2, .2, .2, .2});
  LayerState state = StateOf(pages, 3);
  EXPECT_EQ(Fates(pages, PlanRetention(DemoteRule(), state)), "11KK");
}

TEST(RetentionDemote, APageWithoutAnyMassIsNotFree) {
  const std::vector<PageStat> pages = Pages({0, .2, 0, .2});
  EXPECT_EQ(Fates(pages, PlanRetention(DemoteRule(), StateOf(pages, 4))), "KKKK");
  EXPECT_EQ(Fates(pages, PlanRetention(DemoteRule(), StateOf(pages, 3))), "1K1K");
  EXPECT_EQ(Fates(pages, PlanRetention(DemoteRule(), StateOf(pages, 2))), "1111");
}

}  // namespace retention_test
}  // namespace varve
