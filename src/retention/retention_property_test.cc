// What must hold of every decision, over random tables: gaps, ties, odd floors, pages of several
// sizes.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "retention/policy_table.h"
#include "retention/retention.h"

namespace varve {
namespace retention_property_test {

constexpr int kStates = 600;

const RetentionPolicy* const kEvicting[] = {FindPolicy("h2o"), FindPolicy("window"),
                                            FindPolicy("random"), FindPolicy("tova"),
                                            FindPolicy("snapkv")};

struct Case {
  RetentionRule rule;
  std::vector<PageStat> pages;
  LayerState state;

  bool InFloor(size_t i) const {
    return !pages[i].complete || pages[i].first_position < rule.sink_tokens ||
           pages[i].end_position > state.next_position - rule.recent_tokens;
  }
  bool CanDrop(size_t i) const { return !InFloor(i) && rule.may_drop; }
  bool CanDemote(size_t i) const {
    return rule.policy->uses_levels && pages[i].complete && !pages[i].keeps_level;
  }
  bool IsFixed(size_t i) const { return !CanDrop(i) && !CanDemote(i); }
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t limit) { return engine_() % limit; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

void AddPages(Dice& dice, Case* c) {
  const int64_t page_tokens = int64_t{16} << dice.Below(3);
  const uint64_t count = dice.Below(40);
  const uint64_t distinct = 1 + dice.Below(20);
  int64_t position = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (dice.OneIn(5)) position += page_tokens * static_cast<int64_t>(1 + dice.Below(3));
    PageStat page;
    page.first_position = position;
    page.end_position = position + page_tokens;
    if (i + 1 == count && dice.OneIn(2)) {
      page.complete = false;
      page.end_position = position + 1 + static_cast<int64_t>(dice.Below(page_tokens - 1));
    }
    page.worth = static_cast<double>(dice.Below(distinct)) / 20;
    page.bytes = 4096 * (dice.OneIn(3) ? 3 : 6);
    if (c->rule.policy == FindPolicy("demote")) {
      page.level = page.complete ? static_cast<int>(dice.Below(c->rule.levels.size())) : 0;
      page.bytes = c->rule.levels[static_cast<size_t>(page.level)].bytes;
      if (page.level == 0 && dice.OneIn(4)) page.bytes += 8192;  // not sealed yet
      page.keeps_level = dice.OneIn(6);
    }
    position = page.end_position;
    c->pages.push_back(page);
  }
  c->state.next_position = position;
}

Case RandomCase(Dice& dice, const RetentionPolicy* policy) {
  Case c;
  c.rule.policy = policy;
  c.rule.sink_tokens = static_cast<int64_t>(dice.Below(100));
  c.rule.recent_tokens = static_cast<int64_t>(dice.Below(300));
  if (policy == FindPolicy("demote")) {
    c.rule.levels = {{24576, 0.0}, {12288, 1e-4}, {8192, 0.02}};
    c.rule.levels.resize(1 + dice.Below(3));
    c.rule.may_drop = !dice.OneIn(3);
  }
  AddPages(dice, &c);
  uint64_t total = 1;
  for (const PageStat& page : c.pages) total += page.bytes;
  c.state.pages = c.pages;
  c.state.f16_row_bytes = 512;
  c.state.upcoming_bytes = 24576 * dice.Below(3);
  c.state.target_bytes = dice.Below(total + total / 4);
  if (dice.OneIn(2)) {
    // Around the point where a page, or a span of the decision, just fits or just does not.
    uint64_t edge = c.state.upcoming_bytes + 12288 * dice.Below(4);
    for (size_t i = 0; i < c.pages.size(); ++i) edge += c.IsFixed(i) ? c.pages[i].bytes : 0;
    c.state.target_bytes = edge + 8 * dice.Below(2 * c.pages.size() + 8);
  }
  return c;
}

template <typename Check>
void ForRandomCases(std::initializer_list<const RetentionPolicy*> policies, Check&& check) {
  for (const RetentionPolicy* policy : policies) {
    // A seed per policy.
    const std::vector<std::string_view> names = PolicyNames();
    const auto place = std::find(names.begin(), names.end(), policy->name) - names.begin();
    Dice dice(77 + static_cast<uint64_t>(place));
    for (int i = 0; i < kStates; ++i) {
      const Case c = RandomCase(dice, policy);
      SCOPED_TRACE(testing::Message() << "policy " << policy->name << " state " << i);
      check(c, DecideRetention(c.rule, c.state));
      if (testing::Test::HasFailure()) return;
    }
  }
}

const std::initializer_list<const RetentionPolicy*> kAll = {
    FindPolicy("h2o"),  FindPolicy("window"), FindPolicy("random"),
    FindPolicy("tova"), FindPolicy("snapkv"), FindPolicy("demote")};

TEST(RetentionProperty, FloorsAreNeverDroppedAndFixedPagesNotTouched) {
  ForRandomCases(kAll, [](const Case& c, const RetentionDecision& decision) {
    ASSERT_EQ(decision.levels.size(), c.pages.size());
    uint64_t bytes = 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < c.pages.size(); ++i) {
      if (c.InFloor(i)) {
        EXPECT_NE(decision.levels[i], kDropPage) << i;
        tokens += c.pages[i].end_position - c.pages[i].first_position;
      }
      if (decision.levels[i] != kDropPage && !c.CanDemote(i)) {
        EXPECT_EQ(decision.levels[i], c.pages[i].level) << i;
      }
      if (!c.IsFixed(i)) continue;
      EXPECT_EQ(decision.levels[i], c.pages[i].level) << i;
      bytes += c.pages[i].bytes;
    }
    EXPECT_EQ(decision.floor_bytes, bytes);
    EXPECT_EQ(decision.floor_tokens, tokens);
  });
}

TEST(RetentionProperty, TheBudgetIsMetUnlessWhatMustStayForbidsIt) {
  int bound = 0, free = 0;
  ForRandomCases(kAll, [&](const Case& c, const RetentionDecision& decision) {
    EXPECT_EQ(decision.target_bytes, c.state.target_bytes);
    ++(decision.floors_bind ? bound : free);
    EXPECT_EQ(decision.floors_bind, decision.bytes_after > c.state.target_bytes);
    if (!decision.floors_bind) return;
    // Bound: all is dropped and demoted that may be.
    for (size_t i = 0; i < c.pages.size(); ++i) {
      if (c.CanDrop(i)) {
        EXPECT_EQ(decision.levels[i], kDropPage) << i;
      } else if (c.CanDemote(i) && c.rule.levels.back().bytes < c.pages[i].bytes) {
        EXPECT_EQ(decision.levels[i], static_cast<int>(c.rule.levels.size()) - 1) << i;
      }
    }
  });
  EXPECT_GT(bound, 100);
  EXPECT_GT(free, 100);
}

TEST(RetentionProperty, PlannedBytesAreThoseOfThePagesThatStay) {
  ForRandomCases(kAll, [](const Case& c, const RetentionDecision& decision) {
    uint64_t bytes = c.state.upcoming_bytes + decision.kept.size() * sizeof(TokenSpan);
    bool changes = false;
    for (size_t i = 0; i < c.pages.size(); ++i) {
      changes |= decision.levels[i] != c.pages[i].level;
      if (decision.levels[i] == kDropPage) continue;
      bytes += decision.levels[i] == c.pages[i].level
                   ? c.pages[i].bytes
                   : c.rule.levels[static_cast<size_t>(decision.levels[i])].bytes;
    }
    EXPECT_EQ(decision.bytes_after, bytes);
    EXPECT_EQ(decision.changes, changes);
  });
}

TEST(RetentionProperty, SpansAscendDoNotTouchAndAddUpToThePagesKept) {
  ForRandomCases(kAll, [](const Case& c, const RetentionDecision& decision) {
    int64_t in_spans = 0, last_end = -1;
    for (const TokenSpan& span : decision.kept) {
      EXPECT_GT(span.start, last_end);  // neighbours would have been merged
      EXPECT_GT(span.length, 0);
      last_end = span.start + span.length;
      in_spans += span.length;
    }
    int64_t kept = 0, dropped = 0;
    for (size_t i = 0; i < c.pages.size(); ++i) {
      const PageStat& page = c.pages[i];
      const bool inside =
          std::any_of(decision.kept.begin(), decision.kept.end(), [&](const TokenSpan& span) {
            return span.start <= page.first_position &&
                   page.end_position <= span.start + span.length;
          });
      EXPECT_EQ(inside, decision.levels[i] != kDropPage) << i;
      (inside ? kept : dropped) += page.end_position - page.first_position;
    }
    EXPECT_EQ(decision.kept_tokens, kept);
    EXPECT_EQ(decision.dropped_tokens, dropped);
    EXPECT_EQ(in_spans, kept);
    EXPECT_LE(decision.target_keep, 1.0);
    EXPECT_GE(decision.effective_keep, decision.target_keep);
  });
}

TEST(RetentionProperty, NoDroppedPageIsWorthierThanAKeptOneOfItsSizeOrMore) {
  for (const RetentionPolicy* policy : kEvicting) {
    ForRandomCases({policy}, [](const Case& c, const RetentionDecision& decision) {
      for (size_t gone = 0; gone < c.pages.size(); ++gone) {
        if (decision.levels[gone] != kDropPage) continue;
        // And it would not have fitted beside what stays.
        if (!decision.floors_bind) {
          EXPECT_GT(
              decision.bytes_after + c.pages[gone].bytes + (c.pages.size() + 2) * sizeof(TokenSpan),
              c.state.target_bytes);
        }
        for (size_t kept = 0; kept < c.pages.size(); ++kept) {
          if (decision.levels[kept] == kDropPage || c.InFloor(kept)) continue;
          if (c.pages[kept].bytes < c.pages[gone].bytes) continue;
          EXPECT_GE(c.pages[kept].worth, c.pages[gone].worth) << kept << " " << gone;
          // The younger of equals.
          EXPECT_TRUE(kept > gone || c.pages[kept].worth > c.pages[gone].worth);
        }
      }
    });
  }
}

TEST(RetentionProperty, EvictionNeverChangesALevel) {
  for (const RetentionPolicy* policy : kEvicting) {
    ForRandomCases({policy}, [](const Case& c, const RetentionDecision& decision) {
      for (size_t i = 0; i < c.pages.size(); ++i)
        EXPECT_TRUE(decision.levels[i] == kDropPage || decision.levels[i] == c.pages[i].level);
    });
  }
}

// The bytes of a page that is to be no better than a level.
uint64_t BytesAt(const Case& c, size_t i, int level) {
  const PageStat& page = c.pages[i];
  if (!c.CanDemote(i) || level <= page.level) return page.bytes;
  return std::min(page.bytes, c.rule.levels[static_cast<size_t>(level)].bytes);
}

TEST(RetentionProperty, DemoteIsNeverWorseThanOneRungForAllThatFits) {
  int fits = 0;
  ForRandomCases({FindPolicy("demote")}, [&](const Case& c, const RetentionDecision& decision) {
    for (int level = 0; level < static_cast<int>(c.rule.levels.size()); ++level) {
      uint64_t bytes = c.state.upcoming_bytes + 2 * c.pages.size() * sizeof(TokenSpan);
      for (size_t i = 0; i < c.pages.size(); ++i) bytes += BytesAt(c, i, level);
      if (bytes > c.state.target_bytes) continue;
      ++fits;
      for (size_t i = 0; i < c.pages.size(); ++i) {
        EXPECT_NE(decision.levels[i], kDropPage) << i;
        EXPECT_LE(decision.levels[i], std::max(level, c.pages[i].level)) << i;
      }
      return;
    }
  });
  EXPECT_GT(fits, 50);
}

TEST(RetentionProperty, DemoteDropsOnlyWhenAllElseIsInTheLastLevel) {
  int dropped = 0;
  ForRandomCases({FindPolicy("demote")}, [&](const Case& c, const RetentionDecision& decision) {
    const auto gone = std::count(decision.levels.begin(), decision.levels.end(), kDropPage);
    dropped += static_cast<int>(gone);
    for (size_t i = 0; gone > 0 && i < c.pages.size(); ++i) {
      const bool can_sink = c.CanDemote(i) && c.rule.levels.back().bytes < c.pages[i].bytes;
      if (decision.levels[i] == kDropPage || !can_sink) continue;
      EXPECT_EQ(decision.levels[i], static_cast<int>(c.rule.levels.size()) - 1) << i;
    }
  });
  EXPECT_GT(dropped, 300);
}

// Of two pages of one size and level the one with more mass is not demoted further.
TEST(RetentionProperty, DemoteFavoursPagesWithMoreMass) {
  int compared = 0;
  ForRandomCases({FindPolicy("demote")}, [&](const Case& c, const RetentionDecision& decision) {
    for (size_t a = 0; a < c.pages.size(); ++a) {
      for (size_t b = 0; b < c.pages.size(); ++b) {
        const bool alike = c.CanDemote(a) && c.CanDemote(b) && c.CanDrop(a) == c.CanDrop(b) &&
                           c.pages[a].level == c.pages[b].level &&
                           c.pages[a].bytes == c.pages[b].bytes;
        if (!alike || c.pages[a].worth <= c.pages[b].worth) continue;
        const auto depth = [](int level) { return level == kDropPage ? 99 : level; };
        EXPECT_LE(depth(decision.levels[a]), depth(decision.levels[b])) << a << " " << b;
        ++compared;
      }
    }
  });
  EXPECT_GT(compared, 1000);
}

}  // namespace retention_property_test
}  // namespace varve
