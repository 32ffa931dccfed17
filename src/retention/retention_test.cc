#include "retention/retention.h"
#include "retention/policy_table.h"

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

RetentionRule Rule(const RetentionPolicy* policy, int64_t sink, int64_t recent) {
  RetentionRule rule;
  rule.policy = policy;
  rule.sink_tokens = sink;
  rule.recent_tokens = recent;
  return rule;
}

// The target holds `pages_held` whole pages and the spans of any decision.
LayerState StateOf(const std::vector<PageStat>& pages, uint64_t pages_held) {
  LayerState state;
  state.pages = pages;
  state.next_position = pages.empty() ? 0 : pages.back().end_position;
  state.f16_row_bytes = kBytes / kPage;
  state.target_bytes = pages_held * kBytes + pages.size() * sizeof(TokenSpan);
  return state;
}

// "K" kept, "d" dropped, a digit for a lower level.
std::string Fates(const std::vector<PageStat>& pages, const RetentionDecision& decision) {
  std::string text;
  for (size_t i = 0; i < pages.size(); ++i) {
    text += decision.levels[i] == kDropPage        ? "d"
            : decision.levels[i] == pages[i].level ? "K"
                                                   : std::to_string(decision.levels[i]);
  }
  return text;
}

TEST(RetentionPolicies, AreFoundByTheWordsOfTheTable) {
  EXPECT_EQ(PolicyNames(),
            (std::vector<std::string_view>{"h2o", "window", "random", "tova", "snapkv", "demote"}));
  for (const std::string_view name : PolicyNames()) {
    const RetentionPolicy* policy = FindPolicy(name);
    ASSERT_NE(policy, nullptr) << name;
    EXPECT_EQ(policy->name, name);
    EXPECT_TRUE(policy->worth != nullptr && policy->choose != nullptr) << name;
    EXPECT_EQ(policy->needs_mass, name != "window" && name != "random") << name;
    EXPECT_EQ(policy->needs_prompt_end, name == "snapkv") << name;
    EXPECT_EQ(policy->uses_levels, name == "demote") << name;
  }
  EXPECT_EQ(FindPolicy("h3o"), nullptr);
}

TEST(Retention, DecisionsAreMadeAtMultiplesOfEveryFromTheTriggerOn) {
  RetentionRule rule;
  rule.trigger_tokens = 100;
  rule.every_tokens = 16;
  EXPECT_EQ(NextDecisionPosition(rule, 0), 112);
  EXPECT_EQ(NextDecisionPosition(rule, 112), 112);
  EXPECT_EQ(NextDecisionPosition(rule, 113), 128);
  rule.trigger_tokens = 96;  // exactly the trigger
  EXPECT_EQ(NextDecisionPosition(rule, 95), 96);
  EXPECT_EQ(NextDecisionPosition(rule, 96), 96);
  EXPECT_EQ(NextDecisionPosition(rule, 97), 112);
  rule.trigger_tokens = 0;
  rule.every_tokens = 1;
  EXPECT_EQ(NextDecisionPosition(rule, 0), 0);
  EXPECT_EQ(NextDecisionPosition(rule, 7), 7);
  for (int64_t every : {1, 3, 16, 17}) {
    rule.every_tokens = every;
    rule.trigger_tokens = 50;
    for (int64_t position = 0; position < 200; ++position) {
      const int64_t next = NextDecisionPosition(rule, position);
      EXPECT_EQ(next % every, 0);
      EXPECT_GE(next, std::max<int64_t>(position, 50));
      EXPECT_LT(next, std::max<int64_t>(position, 50) + every);
    }
  }
}

TEST(Retention, KeepsTheFloorsAndThenTheWorthiest) {
  const std::vector<PageStat> pages = Pages({0, .1, .5, .2, .4, .3, 0, 0});
  const RetentionDecision decision =
      DecideRetention(Rule(FindPolicy("h2o"), 1, 17), StateOf(pages, 5));
  EXPECT_EQ(Fates(pages, decision), "KdKdKdKK");
  EXPECT_EQ(decision.kept, (std::vector<TokenSpan>{{0, 16}, {32, 16}, {64, 16}, {96, 32}}));
  EXPECT_EQ(decision.kept_tokens, 80);
  EXPECT_EQ(decision.dropped_tokens, 48);
  EXPECT_EQ(decision.floor_tokens, 48);
  EXPECT_EQ(decision.floor_bytes, 3 * kBytes);
  EXPECT_EQ(decision.bytes_after, 5 * kBytes + 4 * sizeof(TokenSpan));
  EXPECT_FALSE(decision.floors_bind);
  EXPECT_TRUE(decision.changes);
  EXPECT_DOUBLE_EQ(decision.kept_part, 80.0 / 128);
}

TEST(Retention, AFloorIsEveryPageThatTouchesIt) {
  const std::vector<PageStat> pages = Pages(std::vector<double>(8, 0.1));
  const auto fates = [&](int64_t sink, int64_t recent) {
    return Fates(pages, DecideRetention(Rule(FindPolicy("h2o"), sink, recent), StateOf(pages, 0)));
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
  const RetentionDecision decision =
      DecideRetention(Rule(FindPolicy("h2o"), 0, 0), StateOf(pages, 0));
  EXPECT_EQ(Fates(pages, decision), "ddK");
  EXPECT_EQ(decision.floor_tokens, 6);
  EXPECT_TRUE(decision.floors_bind);
}

TEST(Retention, EqualWorthKeepsTheYoungerPages) {
  const std::vector<PageStat> pages = Pages({.2, .2, .2, .2, .2, .2});
  EXPECT_EQ(Fates(pages, DecideRetention(Rule(FindPolicy("h2o"), 0, 0), StateOf(pages, 2))),
            "ddddKK");
}

TEST(Retention, NothingAndOnePage) {
  const std::vector<PageStat> none;
  RetentionDecision decision = DecideRetention(Rule(FindPolicy("h2o"), 4, 4), StateOf(none, 0));
  EXPECT_FALSE(decision.changes);
  EXPECT_TRUE(decision.levels.empty());
  EXPECT_TRUE(decision.kept.empty());
  EXPECT_EQ(decision.kept_tokens, 0);

  const std::vector<PageStat> one = Pages({.5});
  decision = DecideRetention(Rule(FindPolicy("h2o"), 4, 4), StateOf(one, 0));
  EXPECT_EQ(Fates(one, decision), "K");
  EXPECT_TRUE(decision.floors_bind);
  EXPECT_FALSE(decision.changes);
  decision = DecideRetention(Rule(FindPolicy("h2o"), 0, 0), StateOf(one, 1));
  EXPECT_EQ(Fates(one, decision), "K");
  EXPECT_FALSE(decision.floors_bind);
  decision = DecideRetention(Rule(FindPolicy("h2o"), 0, 0), StateOf(one, 0));
  EXPECT_EQ(Fates(one, decision), "d");
}

TEST(Retention, PagesToComeAreLeftRoom) {
  const std::vector<PageStat> pages = Pages({.5, .4, .3, .2});
  LayerState state = StateOf(pages, 3);
  state.upcoming_bytes = kBytes;
  const RetentionDecision decision = DecideRetention(Rule(FindPolicy("h2o"), 0, 0), state);
  EXPECT_EQ(Fates(pages, decision), "KKdd");
  EXPECT_LE(decision.bytes_after, state.target_bytes);
}

TEST(Retention, WindowRanksByPositionAndRandomByNeither) {
  const PageView old_page{.smooth = 0.25, .last = 0.5, .frozen = 0.75};
  PageView young_page = old_page;
  young_page.first_position = 640;
  const auto worth = [](const RetentionPolicy* policy, int layer, PageView page) {
    page.layer = layer;
    return policy->worth(page);
  };
  EXPECT_LT(worth(FindPolicy("window"), 0, old_page), worth(FindPolicy("window"), 0, young_page));
  EXPECT_EQ(worth(FindPolicy("h2o"), 0, old_page), 0.25);
  EXPECT_EQ(worth(FindPolicy("demote"), 0, old_page), 0.25);
  EXPECT_EQ(worth(FindPolicy("tova"), 0, old_page), 0.5);
  EXPECT_EQ(worth(FindPolicy("snapkv"), 0, old_page), 0.75);
  EXPECT_EQ(FindPolicy("snapkv")->worth({.smooth = 0.25, .last = 0.5}), 0.25);
  // A number of its own for each page and layer, the same at every call.
  EXPECT_NE(worth(FindPolicy("random"), 0, old_page), worth(FindPolicy("random"), 0, young_page));
  EXPECT_NE(worth(FindPolicy("random"), 0, old_page), worth(FindPolicy("random"), 1, old_page));
  EXPECT_EQ(worth(FindPolicy("random"), 3, young_page), worth(FindPolicy("random"), 3, young_page));
  int ascents = 0;
  PageView left, right;
  for (int i = 0; i < 1000; ++i) {
    left.first_position = 16 * i;
    right.first_position = 16 * (i + 1);
    ascents += worth(FindPolicy("random"), 2, left) < worth(FindPolicy("random"), 2, right);
  }
  EXPECT_NEAR(ascents, 500, 50);
}

RetentionRule DemoteRule() {
  RetentionRule rule = Rule(FindPolicy("demote"), 0, 0);
  rule.levels = {{1000, 0.0}, {500, 0.01}, {250, 0.1}};
  return rule;
}

TEST(RetentionDemote, DemotesTheLeastWorthyFirstAndNoFurtherThanNeeded) {
  const std::vector<PageStat> pages = Pages({.4, .1, .2, .3});
  const auto fates = [&](uint64_t target) {
    LayerState state = StateOf(pages, 0);
    state.target_bytes += target;
    return Fates(pages, DecideRetention(DemoteRule(), state));
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
    return Fates(pages, DecideRetention(DemoteRule(), state));
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
  EXPECT_EQ(Fates(pages, DecideRetention(DemoteRule(), state)), "11KK");
}

TEST(RetentionDemote, NoPageIsLowerThanTheRungThatWouldDoForAll) {
  // By cost alone the first page would stay and the others go down to level 2.
  const std::vector<PageStat> pages = Pages({1, 0, 0, 0});
  EXPECT_EQ(Fates(pages, DecideRetention(DemoteRule(), StateOf(pages, 2))), "1111");
}

TEST(RetentionDemote, LowersFloorsAndDropsThemNever) {
  const std::vector<PageStat> pages = Pages({.1, .4, .3, .2, .1});
  RetentionRule rule = DemoteRule();
  rule.sink_tokens = rule.recent_tokens = 16;
  const auto fates = [&](uint64_t target) {
    LayerState state = StateOf(pages, 0);
    state.target_bytes += target;
    return Fates(pages, DecideRetention(rule, state));
  };
  EXPECT_EQ(fates(2500), "11111");
  EXPECT_EQ(fates(1250), "22222");
  EXPECT_EQ(fates(1249), "222d2");
  EXPECT_EQ(fates(0), "2ddd2");
}

TEST(RetentionDemote, DropsNothingWhereTheLastLevelMeetsTheRatio) {
  const std::vector<PageStat> pages = Pages({.4, .1, .2, .3});
  RetentionRule rule = DemoteRule();
  rule.may_drop = false;
  const RetentionDecision decision = DecideRetention(rule, StateOf(pages, 0));
  EXPECT_EQ(Fates(pages, decision), "2222");
  EXPECT_TRUE(decision.floors_bind);
  EXPECT_FALSE(DecideRetention(rule, StateOf(pages, 1)).floors_bind);
}

TEST(RetentionDemote, ExactAndOpenPagesKeepTheirLevelOrGo) {
  std::vector<PageStat> pages = Pages({.1, .2, .3, .4});
  pages[0].keeps_level = pages[3].keeps_level = true;
  const auto fates = [&](const RetentionRule& rule, uint64_t target) {
    LayerState state = StateOf(pages, 0);
    state.target_bytes += target;
    return Fates(pages, DecideRetention(rule, state));
  };
  RetentionRule rule = DemoteRule();
  EXPECT_EQ(fates(rule, 3000), "K11K");
  EXPECT_EQ(fates(rule, 2500), "K22K");
  EXPECT_EQ(fates(rule, 1500), "d22K");  // least cost per byte
  rule.sink_tokens = 1;
  EXPECT_EQ(fates(rule, 1500), "K22d");
  rule.may_drop = false;
  EXPECT_EQ(fates(rule, 0), "K22K");
}

TEST(RetentionDemote, APageWithoutAnyMassIsNotFree) {
  const std::vector<PageStat> pages = Pages({0, .2, 0, .2});
  EXPECT_EQ(Fates(pages, DecideRetention(DemoteRule(), StateOf(pages, 4))), "KKKK");
  EXPECT_EQ(Fates(pages, DecideRetention(DemoteRule(), StateOf(pages, 3))), "1K1K");
  EXPECT_EQ(Fates(pages, DecideRetention(DemoteRule(), StateOf(pages, 2))), "1111");
}

}  // namespace retention_test
}  // namespace varve
