// The cap and the system's refusals: a step gets all the memory it needs or changes nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_memory_test {

// A slab of 2 MiB holds one page: 1024 heads x 16 tokens x (32 + 32) values of f16.
CacheShape SlabPages(int layers) {
  return ShapeOf({.layers = layers, .kv_heads = 1024, .group = 1, .key_dim = 32, .value_dim = 32});
}

CacheOptions Capped(uint64_t max_bytes) {
  CacheOptions options;
  options.max_bytes = max_bytes;
  return options;
}

TEST(CacheMemory, AStepAtTheCapIsRefusedWholeAndByName) {
  // Two layers of 8 KiB pages: 2 heads x 16 tokens x (64 + 64) values of f16.
  CacheTwin twin(ShapeOf({.layers = 2}), "f16", Capped(5 * 8192));
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 32));
  const std::string before = StatsText(twin.cache().Report());
  const Status status = twin.Grow(id, 1);  // one more page in each layer
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(status.message(), "page pool: 16384 bytes wanted, bytes_held 32768, max_bytes 40960");
  EXPECT_EQ(StatsText(twin.cache().Report()), before);
  EXPECT_LE(twin.cache().Report().bytes_held, 5u * 8192);
  EXPECT_OK(twin.Compare());
  // Giving something up makes room.
  ASSERT_OK(twin.RemoveRange(id, 0, 16));
  ASSERT_OK(twin.Grow(id, 16));
}

TEST(CacheMemory, ForksCountWhatTheyWillCopy) {
  CacheTwin twin(ShapeOf({.layers = 2}), "f16", Capped(5 * 8192));
  const SequenceId a = twin.Create();
  ASSERT_OK(twin.Grow(a, 5));
  const SequenceId b = *twin.Fork(a), c = *twin.Fork(a);
  const std::vector<StepEntry> all = {{a, 1}, {b, 1}, {c, 1}};
  const std::string before = StatsText(twin.cache().Report());
  EXPECT_EQ(twin.Step(all).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(StatsText(twin.cache().Report()), before);
  EXPECT_EQ(twin.cache().Report().bytes_copied, 0u);
  ASSERT_OK(twin.Step({&all[0], 1}));
}

// Once begun, a step under a cap never lacks the memory to seal: the twin compares every rung.
TEST(CacheMemory, WhatBeginStepGrantsIsEnoughToSealAndDemote) {
  for (const char* plan : {"q8_0", "q4_0,open=40,exact=0", "age=f16:20/q8_0:45/q4_0,exact=0", "f32",
                           "age=q8_0:20/f32:40/q4_0,exact=0", "q8_0,window=60"}) {
    for (uint64_t pages = 4; pages < 30; pages += 5) {
      CacheTwin twin(ShapeOf({.layers = 2}), plan, Capped(pages * 8192));
      std::vector<SequenceId> ids = {twin.Create()};
      for (int step = 0; step < 120; ++step) {
        if (step == 40 || step == 60) ids.push_back(*twin.Fork(ids[0]));
        std::vector<StepEntry> entries;
        for (SequenceId id : ids)
          entries.push_back({id, std::min(3, *twin.cache().MaxStepTokens(id))});
        const Status status = twin.Step(entries);
        ASSERT_LE(twin.cache().Report().bytes_held, pages * 8192);
        if (status.code() == StatusCode::kOutOfMemory) break;
        ASSERT_OK(status);
      }
      ASSERT_OK(twin.Compare());
    }
  }
}

TEST(CacheMemory, ARefusalInTheMiddleOfBeginStepChangesNothing) {
  for (int allowed = 0; allowed < 6; ++allowed) {
    SCOPED_TRACE(allowed);
    CountingMemory memory;
    CacheTwin twin(SlabPages(3), "f16", WithMemory(&memory));
    const SequenceId a = twin.Create(), b = twin.Create();
    const StepEntry first = {a, 7};
    ASSERT_OK(twin.Step({&first, 1}));
    const SequenceId fork = *twin.Fork(a);
    const std::string before = StatsText(twin.cache().Report());
    const uint64_t mapped = memory.bytes_mapped;
    // a or its fork copies in three layers, b takes a page in three.
    const std::vector<StepEntry> entries = {{fork, 1}, {b, 2}};
    memory.maps_left = allowed;
    const Status status = twin.Step(entries);
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(status.message().find("page pool: the system refused a slab of 2097152 bytes"), 0u)
        << status.message();
    EXPECT_EQ(StatsText(twin.cache().Report()), before);
    EXPECT_EQ(memory.bytes_mapped, mapped);
    ASSERT_OK(twin.Compare());
    memory.maps_left = -1;
    ASSERT_OK(twin.Step(entries));
  }
}

TEST(CacheMemory, ARefusalWhileSealingKeepsThePageExactUntilThereIsMemory) {
  CountingMemory memory;
  auto cache = MakeCache(SlabPages(2), "q8_0", WithMemory(&memory));
  const SequenceId id = *cache->CreateSequence();
  const std::vector<float> rows = RowRandom(1).Gaussians(16 * 1024 * 32);
  const auto append = [&](int tokens) {
    const StepEntry entry = {id, tokens};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
    memory.maps_left = memory.maps_left == -2 ? 0 : memory.maps_left;
    for (int layer = 0; layer < 2; ++layer) {
      ASSERT_OK(cache->Append(layer, id, {rows.data(), tokens, 0, 0}, {rows.data(), tokens, 0, 0}));
    }
    ASSERT_OK(cache->EndStep());
  };
  memory.maps_left = -2;  // refuse from the middle of the step on
  append(16);
  CacheReport stats = cache->Report();
  EXPECT_EQ(stats.pages_sealed, 0u);
  ASSERT_EQ(stats.rungs.size(), 1u);
  EXPECT_EQ(stats.rungs[0].rung, "f16");
  EXPECT_EQ(stats.rungs[0].state, PageState::kFull);
  const std::vector<float> exact = ReadAll(*cache, id);

  memory.maps_left = -1;
  append(1);
  stats = cache->Report();
  EXPECT_EQ(stats.pages_sealed, 2u);
  EXPECT_NE(ReadAll(*cache, id), exact);
}

TEST(CacheMemory, EverythingComesBackToTheSystem) {
  CountingMemory memory;
  {
    CacheTwin twin(ShapeOf({.layers = 2}), "age=f16:20/q8_0:45/q4_0,exact=0", WithMemory(&memory));
    const SequenceId a = twin.Create();
    ASSERT_OK(twin.Grow(a, 100));
    ASSERT_OK(twin.Grow(*twin.Fork(a), 30));
    EXPECT_GT(memory.bytes_mapped, 0u);
    EXPECT_GE(twin.cache().Report().bytes_held, twin.cache().Report().bytes_used);
  }
  EXPECT_EQ(memory.bytes_mapped, 0u);
}

TEST(CacheMemory, TablesAndWorkBuffersAreCounted) {
  CacheTwin twin(ShapeOf({.layers = 2}), "f16");
  const CacheReport empty = twin.cache().Report();
  EXPECT_EQ(empty.bytes_used + empty.bytes_held + empty.bytes_scratch, 0u);
  ASSERT_OK(twin.Grow(twin.Create(), 100));
  const CacheReport stats = twin.cache().Report();
  EXPECT_GT(stats.bytes_tables, stats.pages * 64);
  EXPECT_GT(stats.bytes_scratch, 0u);
}

}  // namespace cache_memory_test
}  // namespace varve
