// What the gtest files about the cache share: shapes in one line, statistics as text, content as
// one vector, page memory that counts and can refuse, and threads that run out of memory.

#ifndef VARVE_TESTS_CACHE_TESTING_H_
#define VARVE_TESTS_CACHE_TESTING_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cache/cache_twin.h"
#include "varve/cache.h"
#include "varve/executor.h"

#define EXPECT_OK(expression) EXPECT_EQ((expression).ToString(), "ok")
#define ASSERT_OK(expression) ASSERT_EQ((expression).ToString(), "ok")

namespace varve {

struct ShapeOptions {
  int layers = 1;
  int kv_heads = 2;
  int group = 2;
  int key_dim = 64;
  int value_dim = 64;
  int page = 16;
};

inline CacheShape ShapeOf(const ShapeOptions& options) {
  return {options.layers,  options.kv_heads,  options.group,
          options.key_dim, options.value_dim, options.page};
}

inline std::unique_ptr<Cache> MakeCache(const CacheShape& shape, std::string_view plan,
                                        CacheOptions options = {}) {
  options.plan = *ParsePlan(plan);
  Result<std::unique_ptr<Cache>> cache = Cache::Create(shape, std::move(options));
  EXPECT_EQ(cache.status().ToString(), "ok");
  return std::move(*cache);
}

// What a sequence of calls that ends where it began must leave as it was. bytes_held (the pool may
// keep or discard warm slots), work buffers and what has been copied since creation are left out.
inline std::string StatsText(const CacheReport& stats) {
  std::string text =
      "used " + std::to_string(stats.bytes_used) + " f16 " + std::to_string(stats.bytes_f16) +
      " pages " + std::to_string(stats.pages) + " sequences " + std::to_string(stats.sequences) +
      " sealed " + std::to_string(stats.pages_sealed) + " demoted " +
      std::to_string(stats.pages_demoted) + " adopted " + std::to_string(stats.pages_adopted) +
      " dropped " + std::to_string(stats.pages_dropped) + " nonfinite " +
      std::to_string(stats.nonfinite_values);
  for (const RungBytes& rung : stats.rungs) {
    text += " | " + rung.rung + " " + std::to_string(static_cast<int>(rung.state)) + " " +
            std::to_string(rung.pages) + " " + std::to_string(rung.bytes);
  }
  return text;
}

// Every live row of a sequence: layer by layer, head by head, K then V.
inline std::vector<float> ReadAll(const Cache& cache, SequenceId id) {
  std::vector<float> all;
  const CacheShape& shape = cache.shape();
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const int64_t end = cache.Describe(id, layer)->next_position;
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      for (Part part : {Part::kKey, Part::kValue}) {
        const size_t dim = part == Part::kKey ? shape.key_dim : shape.value_dim;
        std::vector<float> rows((end + 1) * dim);
        const int64_t count = *cache.ReadRows(id, layer, head, part, 0, end, rows.data());
        all.insert(all.end(), rows.begin(), rows.begin() + count * dim);
      }
    }
  }
  return all;
}

// Counts what is mapped, and after a while refuses or throws if told to.
class CountingMemory final : public PageMemory {
 public:
  std::byte* Map(size_t bytes) override {
    if (maps_left == 0 && throws) throw std::bad_alloc();
    if (maps_left == 0) return nullptr;
    if (maps_left > 0) --maps_left;
    void* address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    ++maps;
    bytes_mapped += bytes;
    return static_cast<std::byte*>(address);
  }
  void Discard(std::byte* address, size_t bytes) override {
    EXPECT_EQ(bytes % 4096, 0u);
    ++discards;
    madvise(address, bytes, MADV_DONTNEED);
  }
  void Unmap(std::byte* address, size_t bytes) override {
    ++unmaps;
    bytes_mapped -= bytes;
    munmap(address, bytes);
  }

  int maps_left = -1;  // -1: no limit
  bool throws = false;
  int maps = 0;
  int unmaps = 0;
  int discards = 0;
  uint64_t bytes_mapped = 0;
};

// An executor of one thread whose calls, after a while if told to, fail for want of memory.
class FailingExecutor final : public Executor {
 public:
  int num_threads() const override { return 1; }
  void ParallelFor(size_t count, const std::function<void(size_t, int)>& task) override {
    if (calls_left == 0) {
      ++failed;
      throw std::bad_alloc();
    }
    if (calls_left > 0) --calls_left;
    for (size_t i = 0; i < count; ++i) task(i, 0);
  }

  int calls_left = -1;  // that do their work; -1: all
  int failed = 0;
};

inline CacheOptions WithMemory(PageMemory* memory) {
  CacheOptions options;
  options.memory = memory;
  return options;
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_TESTING_H_
