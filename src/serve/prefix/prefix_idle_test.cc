#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "serve/prefix/prefix_cache_testing.h"

namespace varve::serve {
namespace prefix_idle_test {

// Pages rest in another rung.
class PrefixIdleTest : public PrefixTestBase {
 protected:
  PrefixIdleTest() : PrefixTestBase("q8_0,idle=q4_0,exact=0") {}

  uint64_t PagesIn(const std::string& rung) const {
    uint64_t pages = 0;
    for (const RungBytes& bytes : cache_->Stats().rungs)
      pages += bytes.rung == rung ? bytes.pages : 0;
    return pages;
  }
};

TEST_F(PrefixIdleTest, PagesRestAfterAWhileAFewAtATime) {
  PrefixCache prefixes(*cache_, {.idle_s = 10});
  Talk(prefixes, Tokens(1, 5), 100);
  EXPECT_EQ(prefixes.RestIdle(109, 100), 0u);
  EXPECT_EQ(prefixes.NextIdleWork(), 110);
  EXPECT_EQ(prefixes.RestIdle(110, 3), 3u);
  EXPECT_EQ(PagesIn("q4_0"), 3u);
  EXPECT_EQ(prefixes.NextIdleWork(), 110);
  EXPECT_EQ(prefixes.RestIdle(110, 3), 2u);
  EXPECT_EQ(PagesIn("q4_0"), 5u);
  EXPECT_EQ(PagesIn("q8_0"), 0u);
  EXPECT_EQ(prefixes.stats().pages_rested, 5u);
  EXPECT_EQ(prefixes.RestIdle(200, 3), 0u);
  EXPECT_TRUE(std::isinf(prefixes.NextIdleWork()));
  // Whoever goes on has them as they are, and only what is new rests later.
  Talk(prefixes, Tokens(1, 7), 300);
  EXPECT_EQ(PagesIn("q4_0"), 5u);
  EXPECT_EQ(PagesIn("q8_0"), 2u);
  while (prefixes.RestIdle(310, 3) > 0) {
  }
  EXPECT_EQ(PagesIn("q4_0"), 7u);
  EXPECT_EQ(prefixes.stats().pages_rested, 7u);
}

// What two paths share rests once both are idle, then in both, and there is one copy of it.
TEST_F(PrefixIdleTest, SharedPagesRestWhenNobodyUsesThem) {
  PrefixCache prefixes(*cache_, {.idle_s = 10});
  const auto common = Tokens(1000, 4);
  Talk(prefixes, Join(common, Tokens(1, 2)), 0);
  Talk(prefixes, Join(common, Tokens(500, 3)), 6);
  EXPECT_EQ(prefixes.RestIdle(12, 100), 2u);  // the end of the first
  EXPECT_EQ(PagesIn("q4_0"), 2u);
  EXPECT_EQ(PagesIn("q8_0"), 7u);
  EXPECT_EQ(prefixes.NextIdleWork(), 16);
  EXPECT_EQ(prefixes.RestIdle(16, 100), 7u);
  EXPECT_EQ(PagesIn("q4_0"), 9u);
  EXPECT_EQ(PagesIn("q8_0"), 0u);
  EXPECT_EQ(prefixes.stats().pages_rested, 9u);
}

TEST_F(PrefixIdleTest, WhatIsInUseDoesNotRest) {
  PrefixCache prefixes(*cache_, {.idle_s = 10});
  const auto common = Tokens(1000, 2);
  PrefixNode* pin = Begin(prefixes, Join(common, Tokens(1, 1)), 0).pin;
  Talk(prefixes, Join(common, Tokens(500, 3)), 0);
  EXPECT_EQ(prefixes.RestIdle(100, 100), 3u);  // the other's own; the common ones are pinned
  EXPECT_EQ(PagesIn("q8_0"), 3u);
  EXPECT_TRUE(std::isinf(prefixes.NextIdleWork()));
  prefixes.Touch(*pin, 100);
  prefixes.Unpin(pin);
  EXPECT_EQ(prefixes.RestIdle(109, 100), 0u);
  EXPECT_EQ(prefixes.RestIdle(110, 100), 3u);
  EXPECT_EQ(PagesIn("q8_0"), 0u);
}

TEST_F(PrefixIdleTest, WithoutIdleSecondsNothingRests) {
  PrefixCache prefixes(*cache_, {});
  Talk(prefixes, Tokens(1, 3), 0);
  EXPECT_EQ(prefixes.RestIdle(1e9, 100), 0u);
  EXPECT_FALSE(prefixes.FindToSpill(1e9).has_value());
  EXPECT_TRUE(std::isinf(prefixes.NextIdleWork()));
}

TEST_F(PrefixIdleTest, PathsLeaveFromTheirEnds) {
  PrefixCache prefixes(*cache_, {.spill_s = 50});
  const auto common = Tokens(1000, 4);
  Talk(prefixes, Join(common, Tokens(1, 2)), 0);
  Talk(prefixes, Join(common, Tokens(500, 3)), 20);
  EXPECT_FALSE(prefixes.FindToSpill(49).has_value());
  auto path = prefixes.FindToSpill(50);
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->keys, keys_.Of("", Join(common, Tokens(1, 2))));
  EXPECT_EQ(path->first_page, 4u);
  // Not in a tier yet: later, and later again.
  PrefixCache::PostponeSpill(*path, 50);
  EXPECT_FALSE(prefixes.FindToSpill(50.5).has_value());
  path = prefixes.FindToSpill(51);
  ASSERT_TRUE(path.has_value());
  PrefixCache::PostponeSpill(*path, 51);
  EXPECT_FALSE(prefixes.FindToSpill(52.5).has_value());
  path = prefixes.FindToSpill(53);
  ASSERT_TRUE(path.has_value());
  ASSERT_TRUE(prefixes.Spill(*path).ok());
  EXPECT_EQ(cache_->Stats().pages, 7u);
  EXPECT_FALSE(prefixes.FindToSpill(69).has_value());
  // The last one takes the common pages with it.
  path = prefixes.FindToSpill(70);
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->first_page, 0u);
  ASSERT_TRUE(prefixes.Spill(*path).ok());
  EXPECT_EQ(cache_->Stats().pages, 0u);
  EXPECT_EQ(prefixes.stats().pages_spilled, 9u);
  EXPECT_EQ(prefixes.stats().pages_evicted, 0u);
  EXPECT_EQ(prefixes.stats().pages, 0u);
}

TEST_F(PrefixIdleTest, ATierIsToldBeforeAPageIsEvicted) {
  std::vector<std::pair<size_t, PageKey>> told;
  PrefixOptions options;
  options.before_eviction = [&](SequenceId sequence, size_t page, const PageKey& key) {
    EXPECT_TRUE(cache_
                    ->ExportPages(sequence, static_cast<int64_t>(page) * kPage,
                                  static_cast<int64_t>(page + 1) * kPage)
                    .ok());
    told.emplace_back(page, key);
  };
  PrefixCache prefixes(*cache_, options);
  Talk(prefixes, Tokens(1, 2), 0);
  EXPECT_TRUE(prefixes.Clear().ok());
  const auto keys = keys_.Of("", Tokens(1, 2));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], std::pair(size_t{1}, keys[1]));
  EXPECT_EQ(told[1], std::pair(size_t{0}, keys[0]));
}

}  // namespace prefix_idle_test
}  // namespace varve::serve
