// Several caches, on several threads, with one page pool.

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cache_testing.h"
#include "varve/step.h"

namespace varve {
namespace cache_shared_pool_test {

constexpr CacheShape kShape{
    .num_layers = 2, .num_kv_heads = 2, .group_size = 1, .key_dim = 64, .value_dim = 64};

std::unique_ptr<Cache> MakeCache(const char* plan, std::shared_ptr<PagePool> pool) {
  CacheOptions options;
  options.plan = *ParsePlan(plan);
  options.num_threads = 1;
  options.pool = std::move(pool);
  return Cache::Create(kShape, std::move(options)).value();
}

// Feeds tokens of noise and gives the last attention output; stops where there is no room.
std::vector<float> Feed(Cache& cache, SequenceId id, int64_t num_tokens, Status* status) {
  std::vector<float> rows;
  std::vector<float> output(static_cast<size_t>(128 * 2 * 64));
  *status = Prefill(cache, id, num_tokens, [&](Step& step, int64_t first, int count) -> Status {
    rows.resize(static_cast<size_t>(std::max(128, count)) * 2 * 64);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<float>((i * 31 + static_cast<size_t>(first) * 17) % 101) / 50 - 1;
    }
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      VARVE_RETURN_IF_ERROR(step.Append(layer, id, {rows.data(), count}, {rows.data(), count}));
      AttendRequest request;
      request.sequence = id;
      request.queries = rows.data();
      request.output = output.data();
      VARVE_RETURN_IF_ERROR(step.Attend(layer, {&request, 1}));
    }
    return Status();
  });
  return output;
}

TEST(SharedPool, CachesOnSeveralThreadsGiveTheResultsOfCachesOfTheirOwn) {
  const char* plans[] = {"f16", "q8_0", "q4_0,pack=store,exact=0", "age=f16:128/q8_0"};
  const std::shared_ptr<PagePool> pool = MakePagePool(0);
  std::vector<std::vector<float>> outputs(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::unique_ptr<Cache> cache = MakeCache(plans[i], pool);
      Status status;
      outputs[i] = Feed(*cache, *cache->CreateSequence(), 700, &status);
      EXPECT_OK(status);
      EXPECT_GT(cache->Stats().bytes_held, 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i) {
    const std::unique_ptr<Cache> own = MakeCache(plans[i], nullptr);
    Status status;
    EXPECT_EQ(outputs[i], Feed(*own, *own->CreateSequence(), 700, &status)) << plans[i];
  }
}

TEST(SharedPool, TheCapIsOfAllCachesTogether) {
  constexpr uint64_t kCap = 1 << 20;
  const std::shared_ptr<PagePool> pool = MakePagePool(kCap);
  const std::unique_ptr<Cache> first = MakeCache("f16", pool);
  const std::unique_ptr<Cache> second = MakeCache("f16", pool);
  const SequenceId id = *first->CreateSequence();
  Status status;
  Feed(*first, id, 100000, &status);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_LE(PagePoolBytesHeld(*pool), kCap);
  EXPECT_GT(PagePoolBytesHeld(*pool), kCap / 2);
  // The other cache has no room until the first gives some up.
  const SequenceId other = *second->CreateSequence();
  Feed(*second, other, 500, &status);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  ASSERT_OK(first->Free(id));
  Feed(*second, other, 500, &status);
  EXPECT_OK(status);
  EXPECT_EQ(first->Stats().bytes_held, 0u);
  EXPECT_GT(second->Stats().bytes_held, 0u);
}

TEST(SharedPool, OutlivesTheProgramsPointer) {
  std::shared_ptr<PagePool> pool = MakePagePool(0);
  const std::unique_ptr<Cache> cache = MakeCache("q8_0", pool);
  pool.reset();
  Status status;
  Feed(*cache, *cache->CreateSequence(), 200, &status);
  EXPECT_OK(status);
}

TEST(SharedPool, HasCapAndMemoryOfItsOwn) {
  CacheOptions options;
  options.pool = MakePagePool(1 << 20);
  options.max_bytes = 5;
  EXPECT_EQ(Cache::Create(kShape, options).status().message(),
            "cache options: max_bytes 5 is not 0; the cap of a shared pool is that of "
            "MakePagePool");
  CountingMemory memory;
  options.max_bytes = 0;
  options.memory = &memory;
  EXPECT_EQ(Cache::Create(kShape, options).status().message(),
            "cache options: memory is not null; hand it to MakePagePool");
}

}  // namespace cache_shared_pool_test
}  // namespace varve
