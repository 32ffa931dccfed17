#include "serve/prefix/prefix_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "serve/prefix/prefix_cache_testing.h"

namespace varve::serve {
namespace prefix_cache_test {

class PrefixCacheTest : public PrefixTestBase {
 protected:
  PrefixCacheTest() : PrefixTestBase("f16") {}

  uint64_t PagesHeld() const { return cache_->Stats().pages; }
};

TEST_F(PrefixCacheTest, KeysChainAndDependOnEverything) {
  const auto tokens = Tokens(5, 3);
  const auto keys = keys_.Of("", tokens);
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys_.Of("", tokens), keys);
  auto other = tokens;
  other[0] = 99;
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(keys_.Of("", other)[i], keys[i]);
  other = tokens;
  other[20] = 99;
  EXPECT_EQ(keys_.Of("", other)[0], keys[0]);
  EXPECT_NE(keys_.Of("", other)[2], keys[2]);
  EXPECT_NE(keys_.Of("tenant", tokens), keys);
  EXPECT_NE(PageKeys(2, "f16", kPage).Of("", tokens), keys);
  EXPECT_NE(PageKeys(1, "q8_0", kPage).Of("", tokens), keys);
  EXPECT_EQ(keys_.Of("", Tokens(5, 1)).size(), 1u);
  EXPECT_TRUE(keys_.Of("", std::vector<int32_t>(kPage - 1)).empty());
}

TEST_F(PrefixCacheTest, EqualPrefixesAreStoredOnce) {
  PrefixCache prefixes(*cache_, {});
  const auto common = Tokens(1000, 4);
  EXPECT_EQ(Talk(prefixes, Join(common, Tokens(1, 2)), 0), 0u);
  EXPECT_EQ(PagesHeld(), 6u);
  EXPECT_EQ(Talk(prefixes, Join(common, Tokens(500, 3)), 1), 4u);
  EXPECT_EQ(PagesHeld(), 9u);
  // A longer form of the first one takes its place.
  EXPECT_EQ(Talk(prefixes, Join(common, Tokens(1, 5)), 2), 6u);
  EXPECT_EQ(PagesHeld(), 12u);
  EXPECT_EQ(prefixes.stats().pages, 12u);
  EXPECT_EQ(prefixes.stats().leaves, 2u);
  EXPECT_EQ(prefixes.stats().hits, 10u);
}

TEST_F(PrefixCacheTest, WhatIsTakenHasTheRowsThatWereKept) {
  PrefixCache prefixes(*cache_, {});
  const auto tokens = Tokens(7, 3);
  Talk(prefixes, tokens, 0);
  const auto hit = prefixes.Take(keys_.Of("", Tokens(7, 2)), 1);
  ASSERT_TRUE(hit.ok() && hit->has_value());
  std::vector<float> rows(2 * kPage * kDim);
  const auto read = cache_->ReadRows((*hit)->sequence, 0, 0, Part::kKey, 0, 2 * kPage, rows.data());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, 2 * kPage);
  for (size_t i = 0; i < 2 * kPage; ++i) EXPECT_EQ(rows[i * kDim], static_cast<float>(i));
  EXPECT_EQ(*cache_->NextPosition((*hit)->sequence), 2 * kPage);
}

TEST_F(PrefixCacheTest, CountsWhatNobodyHasUsedForAWhile) {
  PrefixCache prefixes(*cache_, {});
  const auto common = Tokens(1000, 2);
  // Conversations of two turns.
  for (const double now_s : {-1, 0}) Talk(prefixes, Join(common, Tokens(1, 2)), now_s);
  for (const double now_s : {4, 5}) Talk(prefixes, Join(common, Tokens(500, 3)), now_s);
  Talk(prefixes, Tokens(2000, 4), -1);
  PrefixNode* pin = Begin(prefixes, Tokens(2000, 4), 0).pin;
  EXPECT_EQ(prefixes.NumUnusedSince(0, 100), 0u);
  EXPECT_EQ(prefixes.NumUnusedSince(1, 100), 2u);  // the end of the first
  EXPECT_EQ(prefixes.NumUnusedSince(6, 100), 7u);  // and the second with what both have
  EXPECT_EQ(prefixes.NumUnusedSince(6, 4), 4u);
  prefixes.Unpin(pin);
  EXPECT_EQ(prefixes.NumUnusedSince(6, 100), 11u);
  // What was asked once keeps nobody waiting, however new; the common pages are others', too.
  Talk(prefixes, Join(common, Tokens(3000, 6)), 7);
  EXPECT_EQ(prefixes.NumUnusedSince(0, 100), 6u);
  Talk(prefixes, Join(common, Tokens(3000, 6)), 8);
  EXPECT_EQ(prefixes.NumUnusedSince(0, 100), 0u);
}

TEST_F(PrefixCacheTest, EvictionGivesTheMemoryBackPageByPage) {
  PrefixCache prefixes(*cache_, {});
  Talk(prefixes, Join(Tokens(1000, 2), Tokens(1, 2)), 0);
  Talk(prefixes, Join(Tokens(1000, 2), Tokens(500, 1)), 0);
  for (uint64_t left = 5; left > 0; --left) {
    EXPECT_EQ(PagesHeld(), left);
    const auto evicted = prefixes.EvictOne(1);
    ASSERT_TRUE(evicted.ok() && *evicted);
  }
  EXPECT_EQ(PagesHeld(), 0u);
  const auto evicted = prefixes.EvictOne(1);
  EXPECT_TRUE(evicted.ok() && !*evicted);
}

TEST_F(PrefixCacheTest, WhatIsInUseStays) {
  PrefixCache prefixes(*cache_, {});
  Talk(prefixes, Tokens(1, 3), 0);
  const auto hit = prefixes.Take(keys_.Of("", Tokens(1, 2)), 0);
  ASSERT_TRUE(hit.ok() && hit->has_value());
  EXPECT_TRUE(*prefixes.EvictOne(1));   // the third page
  EXPECT_FALSE(*prefixes.EvictOne(1));  // the other two are pinned
  prefixes.Unpin((*hit)->pin);
  EXPECT_TRUE(*prefixes.EvictOne(1));
}

TEST_F(PrefixCacheTest, PlansWhosePagesDependOnTheFutureAreNotCacheable) {
  for (const char* text : {"evict=h2o", "window=256", "0-1: f16; 2-: evict=demote"}) {
    EXPECT_FALSE(Cacheable(*ParsePlan(text)).ok()) << text;
  }
  for (const char* text : {"", "q8_0", "age=f16:512/q8_0", "pack=store"}) {
    EXPECT_TRUE(Cacheable(*ParsePlan(text)).ok()) << text;
  }
}

// A system prompt that is asked for now and then, among documents that are read once: by last use
// alone the documents push it out each time.
TEST_F(PrefixCacheTest, ValueKeepsASharedPromptThatLruLoses) {
  constexpr size_t kBudgetPages = 24;
  const auto hits = [&](EvictionOrder order) {
    PrefixCache prefixes(*cache_, {.order = order});
    size_t pages_hit = 0;
    double now_s = 0;
    const auto talk = [&](const std::vector<int32_t>& tokens) {
      const size_t hit = Talk(prefixes, tokens, ++now_s);
      while (prefixes.stats().pages > kBudgetPages) EXPECT_TRUE(*prefixes.EvictOne(now_s));
      return hit;
    };
    for (int32_t round = 0; round < 10; ++round) {
      for (int32_t user = 0; user < 3; ++user) {
        pages_hit += talk(Join(Tokens(1000, 8), Tokens(10000 + round * 300 + user * 100, 1)));
      }
      talk(Tokens(100000 + round * 1000, 12));
      talk(Tokens(200000 + round * 1000, 12));
    }
    EXPECT_TRUE(prefixes.Clear().ok());
    return pages_hit;
  };
  const size_t by_value = hits(EvictionOrder::kValue);
  const size_t by_lru = hits(EvictionOrder::kLru);
  RecordProperty("pages_hit_by_value", static_cast<int>(by_value));
  RecordProperty("pages_hit_by_lru", static_cast<int>(by_lru));
  EXPECT_EQ(by_value, 29u * 8);  // all but the first
  EXPECT_LT(by_lru, by_value * 3 / 4);
}

}  // namespace prefix_cache_test
}  // namespace varve::serve
