// Forking is free: pages are shared, only an open page is copied, and only by who writes to it. A
// shared page is encoded once.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_fork_test {

// Rows without meaning, in bulk.
void Fill(Cache& cache, SequenceId id, int64_t tokens, uint64_t seed = 1) {
  const CacheShape& shape = cache.shape();
  const size_t widest = std::max(shape.key_dim, shape.value_dim);
  const std::vector<float> rows =
      RowRandom(seed).Gaussians(shape.page_tokens * shape.num_kv_heads * widest);
  while (tokens > 0) {
    const int count = static_cast<int>(std::min<int64_t>(tokens, shape.page_tokens));
    const StepEntry entry = {id, count};
    ASSERT_OK(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      ASSERT_OK(cache.Append(layer, id, {rows.data(), count, 0, 0}, {rows.data(), count, 0, 0}));
    }
    ASSERT_OK(cache.EndStep());
    tokens -= count;
  }
}

uint64_t PageBytes(const CacheReport& stats, PageState state) {
  for (const RungBytes& rung : stats.rungs) {
    if (rung.state == state) return rung.bytes / rung.pages;
  }
  return 0;
}

TEST(CacheFork, EightBeamsOf32KTokensCopyNoSealedPage) {
  constexpr int kLayers = 2;
  auto cache = MakeCache(ShapeOf({.layers = kLayers,
                                  .kv_heads = 1,
                                  .group = 1,
                                  .key_dim = 32,
                                  .value_dim = 32,
                                  .page = 64}),
                         "q8_0");
  const SequenceId trunk = *cache->CreateSequence();
  Fill(*cache, trunk, 32768 + 20);
  const CacheReport before = cache->Report();
  std::vector<SequenceId> beams;
  for (int i = 0; i < 8; ++i) beams.push_back(*cache->Fork(trunk));
  CacheReport stats = cache->Report();
  EXPECT_EQ(stats.bytes_used, before.bytes_used);
  EXPECT_EQ(stats.bytes_held, before.bytes_held);
  EXPECT_EQ(stats.bytes_copied, 0u);
  EXPECT_EQ(stats.pages, before.pages);
  EXPECT_EQ(stats.bytes_f16, 9 * before.bytes_f16);

  // Each beam that appends gets its own copy of the open page, one per layer, and of nothing else.
  const uint64_t open_bytes = PageBytes(before, PageState::kFilling);
  for (size_t i = 0; i < beams.size(); ++i) Fill(*cache, beams[i], 1, i);
  stats = cache->Report();
  EXPECT_EQ(stats.bytes_copied, 8 * kLayers * open_bytes);
  EXPECT_EQ(stats.bytes_used, before.bytes_used + 8 * kLayers * open_bytes);
  EXPECT_EQ(stats.pages, before.pages + 8 * kLayers);

  ASSERT_OK(cache->Free(trunk));
  for (size_t i = 0; i < beams.size(); ++i) ASSERT_OK(cache->Free(beams[(i * 3) % 8]));
  EXPECT_EQ(cache->Report().bytes_used, 0u);
  EXPECT_EQ(cache->Report().pages, 0u);
}

TEST(CacheFork, APageThatIsSharedWhenItSealsIsEncodedOnce) {
  auto cache = MakeCache(ShapeOf({.layers = 2}), "q8_0,open=16");
  const SequenceId trunk = *cache->CreateSequence();
  Fill(*cache, trunk, 32);  // pages 0 (sealed) and 16 (full, still open)
  const CacheReport before = cache->Report();
  EXPECT_EQ(before.pages_sealed, 2u);
  std::vector<SequenceId> beams = {trunk};
  for (int i = 0; i < 3; ++i) beams.push_back(*cache->Fork(trunk));
  for (SequenceId beam : beams) Fill(*cache, beam, 16, beam.value);
  const CacheReport stats = cache->Report();
  EXPECT_EQ(stats.pages_sealed, before.pages_sealed + 2);  // once per layer
  EXPECT_EQ(stats.pages_adopted, 3u * 2);                  // by the other three
  EXPECT_EQ(stats.pages, 2u * (2 + 4));                    // two shared, one of each beam's own
  for (SequenceId beam : beams) ASSERT_OK(cache->Free(beam));
  EXPECT_EQ(cache->Report().bytes_used, 0u);
}

TEST(CacheFork, DemotionOfASharedPageIsAdoptedToo) {
  auto cache = MakeCache(ShapeOf({}), "age=q8_0:32/q4_0,exact=0");
  const SequenceId a = *cache->CreateSequence();
  Fill(*cache, a, 32);
  const SequenceId b = *cache->Fork(a);
  Fill(*cache, a, 32, 2);
  EXPECT_EQ(cache->Report().pages_demoted, 2u);
  EXPECT_EQ(cache->Report().pages_adopted, 0u);
  Fill(*cache, b, 32, 3);
  EXPECT_EQ(cache->Report().pages_demoted, 2u);
  EXPECT_EQ(cache->Report().pages_adopted, 2u);
}

TEST(CacheFork, AnEncodedPageThatNobodyHoldsAnyMoreIsNotAdopted) {
  auto cache = MakeCache(ShapeOf({}), "q8_0,open=16");
  const SequenceId a = *cache->CreateSequence();
  Fill(*cache, a, 16);
  const SequenceId b = *cache->Fork(a);
  Fill(*cache, a, 16, 2);
  ASSERT_OK(cache->Free(a));
  Fill(*cache, b, 16, 3);
  EXPECT_EQ(cache->Report().pages_adopted, 0u);
  EXPECT_EQ(cache->Report().pages_sealed, 2u);
}

TEST(CacheFork, DivergingBeamsDoNotSeeEachOther) {
  auto cache = MakeCache(ShapeOf({.layers = 2}), "q4_0,exact=0");
  const SequenceId a = *cache->CreateSequence();
  Fill(*cache, a, 40);
  const SequenceId b = *cache->Fork(a);
  const std::vector<float> before = ReadAll(*cache, a);
  EXPECT_EQ(ReadAll(*cache, b), before);
  Fill(*cache, b, 30, 9);
  EXPECT_EQ(ReadAll(*cache, a), before);
  Fill(*cache, a, 30, 10);
  EXPECT_NE(ReadAll(*cache, a), ReadAll(*cache, b));
  ASSERT_OK(cache->Truncate(a, 40));
  ASSERT_OK(cache->Truncate(b, 40));
  EXPECT_EQ(ReadAll(*cache, a).size(), before.size());
}

TEST(CacheFork, TheOrderOfFreeingDoesNotMatter) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    CountingMemory memory;
    auto cache =
        MakeCache(ShapeOf({.layers = 2}), "age=f16:20/q8_0:50/q4_0,exact=0", WithMemory(&memory));
    std::vector<SequenceId> ids = {*cache->CreateSequence()};
    Fill(*cache, ids[0], 75);
    for (int i = 1; i < 4; ++i) {
      ids.push_back(*cache->Fork(ids[i - 1]));
      Fill(*cache, ids[i], 13, i);
    }
    for (int i : order) ASSERT_OK(cache->Free(ids[i]));
    EXPECT_EQ(cache->Report().bytes_used, 0u);
    EXPECT_TRUE(cache->Report().rungs.empty());
    cache.reset();
    EXPECT_EQ(memory.bytes_mapped, 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace cache_fork_test
}  // namespace varve
