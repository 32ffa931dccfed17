// Stats().bytes_held is what the process really keeps resident for pages, on the way up and on the
// way down.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/machine.h"
#include "fold/compressor_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace resident_memory_test {

uint64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") return kib << 10;
    std::getline(meminfo, unit);
  }
  return 0;
}

class ResidentMemorySlow : public testing::Test {
 protected:
  void SetUp() override {
#ifdef VARVE_SANITIZED
    GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
    if (AvailableBytes() < uint64_t{3} << 30) GTEST_SKIP() << "less than 3 GiB of memory available";
  }

  void ExpectResident(const Cache& cache, const std::string& when) {
    const int64_t held = static_cast<int64_t>(cache.Stats().bytes_held);
    const int64_t grown = static_cast<int64_t>(ResidentBytes() - before_);
    EXPECT_LE(std::abs(grown - held), held / 20 + (8 << 20))
        << when << ": held " << held << ", grown " << grown;
  }

  uint64_t before_ = 0;
};

TEST_F(ResidentMemorySlow, FollowsTheStatisticsWhileAGiBIsTakenAndGivenBack) {
  for (const char* plan : {"f16", "q8_0,open=512"}) {
    SCOPED_TRACE(plan);
    // 4 layers x 64 tokens x 64 heads x (128 + 128) values: 8 MiB of f16 per step of 64 tokens.
    const CacheShape shape = ShapeOf(
        {.layers = 4, .kv_heads = 64, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
    const std::vector<float> rows(64 * 64 * 128, 0.5f);
    auto cache = MakeCache(shape, plan);
    std::vector<SequenceId> ids;
    before_ = ResidentBytes();
    for (uint64_t checkpoint = 1; cache->Stats().bytes_held < uint64_t{1} << 30; ++checkpoint) {
      ids.push_back(*cache->CreateSequence());
      while (cache->Stats().bytes_held < checkpoint << 28) {
        const StepEntry entry = {ids.back(), 64};
        ASSERT_OK(cache->BeginStep({&entry, 1}));
        for (int layer = 0; layer < 4; ++layer) {
          ASSERT_OK(cache->Append(layer, entry.sequence, {rows.data(), 64, 0, 0},
                                  {rows.data(), 64, 0, 0}));
        }
        ASSERT_OK(cache->EndStep());
      }
      ExpectResident(*cache, "up " + std::to_string(checkpoint));
    }
    // Down: every other page of all, then from the end, then everything.
    for (SequenceId id : ids) {
      const int64_t end = cache->Describe(id, 0)->next_position;
      for (int64_t page = 0; page + 64 <= end; page += 128)
        ASSERT_OK(cache->RemoveRange(id, page, page + 64));
      ExpectResident(*cache, "holes");
    }
    for (SequenceId id : ids) {
      ASSERT_OK(cache->Truncate(id, cache->Describe(id, 0)->next_position / 2));
      ExpectResident(*cache, "cut");
    }
    for (SequenceId id : ids) {
      ASSERT_OK(cache->Free(id));
      ExpectResident(*cache, "freed");
    }
    EXPECT_EQ(cache->Stats().bytes_used, 0u);
    EXPECT_LE(cache->Stats().bytes_held, uint64_t{1} << 21);
  }
}

TEST_F(ResidentMemorySlow, FallsByTheFactorWhenAPromptIsFolded) {
  const CacheShape shape = ShapeOf(
      {.layers = 4, .kv_heads = 64, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  CompressorSpec spec;
  spec.num_layers = 4;
  spec.head_dim = 128;
  spec.factor = 4;
  CacheOptions options;
  options.compressor = std::make_shared<const Compressor>(RandomCompressor(spec));
  auto cache = MakeCache(shape, "fold=shipped", options);
  const SequenceId id = *cache->CreateSequence();
  const std::vector<float> rows(64 * 64 * 128, 0.5f);
  before_ = ResidentBytes();
  while (*cache->NextPosition(id) < 2048) {
    const StepEntry entry = {id, 64};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
    for (int layer = 0; layer < 4; ++layer)
      ASSERT_OK(cache->Append(layer, id, {rows.data(), 64, 0, 0}, {rows.data(), 64, 0, 0}));
    ASSERT_OK(cache->EndStep());
  }
  ExpectResident(*cache, "prompt");  // 256 MiB
  const uint64_t prompt = ResidentBytes() - before_;
  ASSERT_OK(cache->EndPrompt(id));
  ExpectResident(*cache, "folded");
  const uint64_t folded = ResidentBytes() - before_;
  EXPECT_NEAR(static_cast<double>(prompt) / static_cast<double>(folded), 4.0, 0.6);
}

}  // namespace resident_memory_test
}  // namespace varve
