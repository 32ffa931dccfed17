// Dropping a page frees its memory.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/machine.h"
#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_retention_memory_test {

TEST(CacheRetentionMemory, BytesHeldFallWhenPagesAreDropped) {
  // 512 KiB a page: beyond what the pool keeps warm.
  const CacheShape shape = ShapeOf(
      {.layers = 2, .kv_heads = 16, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  const RetentionWork work(shape, 1030);
  for (const char* policy : {"h2o", "window", "demote"}) {
    SCOPED_TRACE(policy);
    CountingMemory memory;
    CacheOptions options;
    options.memory = &memory;
    RetentionRun run(shape,
                     "exact=0,ratio=4,sink=16,recent=64,trigger=1024,evict=" + std::string(policy),
                     work, options);
    run.attends = std::string(policy) != "window";  // needs no attention
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 1024);
    const CacheStats before = run.cache->Stats();
    EXPECT_GE(before.bytes_held, uint64_t{16} << 20);
    run.Feed(id, 1025);
    const CacheStats after = run.cache->Stats();
    // Demotion goes no lower than the rung that meets the ratio, beside the page that was begun.
    const uint64_t begun = std::string(policy) == "demote" ? 2 * (512 << 10) : 0;
    EXPECT_LE(after.bytes_used, before.bytes_used / 4 + begun + 64);
    // What the pool keeps warm is bounded.
    EXPECT_LE(after.bytes_held, after.bytes_used + (uint64_t{4} << 20));
    EXPECT_LT(after.bytes_held, before.bytes_held / 2);
    EXPECT_GT(memory.discards + memory.unmaps, 0);
  }
}

TEST(CacheRetentionMemorySlow, ResidentMemoryFallsWithThePages) {
#ifdef VARVE_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const CacheShape shape = ShapeOf(
      {.layers = 4, .kv_heads = 64, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  const std::vector<float> rows(64 * 64 * 128, 0.5f);
  std::vector<float> out(64 * 128);
  auto cache = MakeCache(shape, "evict=h2o,ratio=4,sink=64,recent=256,trigger=2560,every=64");
  const SequenceId id = *cache->CreateSequence();
  const uint64_t start = ResidentBytes();
  const auto grown = [&] { return static_cast<int64_t>(ResidentBytes() - start); };
  const auto step = [&](int count) {
    const StepEntry entry = {id, count};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
    for (int layer = 0; layer < 4; ++layer) {
      ASSERT_OK(cache->Append(layer, id, {rows.data(), count, 0, 0}, {rows.data(), count, 0, 0}));
      const AttendRequest request = {id, 1, rows.data(), 0, 0, out.data(), 0, 0, nullptr};
      ASSERT_OK(cache->Attend(layer, {&request, 1}, {}));
    }
    ASSERT_OK(cache->EndStep());
  };
  for (int i = 0; i < 40; ++i) step(64);
  const int64_t full = grown();
  EXPECT_GE(full, int64_t{300} << 20);  // 40 x 8 MiB
  step(1);
  const int64_t evicted = grown();
  EXPECT_LE(evicted, full / 4 + (int64_t{24} << 20));
  const auto held = static_cast<int64_t>(cache->Stats().bytes_held);
  EXPECT_LE(std::abs(evicted - held), held / 20 + (int64_t{16} << 20));
}

}  // namespace cache_retention_memory_test
}  // namespace varve
