// Packed pages in a spill file: the same results, less memory, and nothing lost when it is full.

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/machine.h"
#include "plan/plan_values.h"
#include "tests/cache/packing_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_spill_test {

CacheShape Shape() {
  return ShapeOf({.layers = 3, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 64});
}

// Pages of 128 KiB.
CacheShape LargeShape() {
  return ShapeOf(
      {.layers = 2, .kv_heads = 4, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
}

constexpr const char* kPacking = "pack=store,hot=16/32,bootstrap=16,step=16";

std::string Spilling(const TempFolder& folder, const std::string& more = "") {
  return std::string(kPacking) + ",spill=" + QuoteFileName(folder.File("spill")) + more;
}

void FeedWaiting(RetentionRun& run, SequenceId id, int64_t until, int step = 1 << 20) {
  run.after_step = [&run] { run.cache->WaitForPacking(); };
  run.Feed(id, until, step);
}

TEST(CacheSpill, ChangesNoResult) {
  const TempFolder folder;
  const RetentionWork work(Shape(), 500);
  for (const std::string rules :
       {"", "evict=h2o,ratio=2.5,sink=16,recent=32,trigger=128,", "window=200,sink=32,",
        "decode_cache=9,", "evict=window,ratio=2,sink=16,recent=32,trigger=128,"}) {
    const bool packs = rules.starts_with("decode_cache");
    RetentionRun plain(Shape(), packs || rules.empty() ? "f16" : rules.substr(0, rules.size() - 1),
                       work);
    RetentionRun run(Shape(), rules + Spilling(folder), work);
    const SequenceId id = *plain.cache->CreateSequence();
    ASSERT_EQ(*run.cache->CreateSequence(), id);
    plain.Feed(id, 500, 16);
    FeedWaiting(run, id, 500, 16);
    const CacheReport stats = run.cache->Report();
    EXPECT_GT(stats.lossless.pages_spilled, 0u) << rules;
    EXPECT_EQ(stats.lossless.pages_spilled, stats.lossless.pages_now) << rules;
    EXPECT_EQ(stats.lossless.bytes_spilled, stats.lossless.packed_bytes_now) << rules;
    EXPECT_EQ(stats.lossless.spill_refused, 0u);
    EXPECT_TRUE(plain.outputs == run.outputs) << rules;
    EXPECT_TRUE(ReadAll(*plain.cache, id) == ReadAll(*run.cache, id)) << rules;
    // A cut through a spilled page, and everything freed.
    ASSERT_OK(run.cache->Truncate(id, 100));
    ASSERT_OK(plain.cache->Truncate(id, 100));
    EXPECT_TRUE(ReadAll(*plain.cache, id) == ReadAll(*run.cache, id)) << rules;
    ASSERT_OK(run.cache->Free(id));
    EXPECT_EQ(run.cache->Report().lossless.bytes_spilled, 0u);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.File("spill")));
}

TEST(CacheSpill, HeldBytesFallToWhatIsKept) {
  const TempFolder folder;
  const RetentionWork work(LargeShape(), 1600);
  const auto held = [&](const std::string& plan) {
    RetentionRun run(LargeShape(), plan, work);
    run.attends = false;
    const SequenceId id = *run.cache->CreateSequence();
    FeedWaiting(run, id, 1600);
    CacheReport stats = run.cache->Report();
    EXPECT_EQ(stats.lossless.pages_now, 46u);
    return stats;
  };
  const CacheReport packed = held(kPacking);
  const CacheReport spilled = held(Spilling(folder));
  const CacheReport kept = held(Spilling(folder, ",keep_mib=2"));
  EXPECT_GT(packed.lossless.packed_bytes_now, uint64_t{4} << 20);
  EXPECT_LE(spilled.bytes_held, packed.bytes_held - packed.lossless.packed_bytes_now);
  const uint64_t in_memory = kept.lossless.packed_bytes_now - kept.lossless.bytes_spilled;
  EXPECT_LE(in_memory, uint64_t{2} << 20);
  EXPECT_GT(in_memory, uint64_t{3} << 19);
  EXPECT_GE(kept.bytes_held, spilled.bytes_held + in_memory);
}

TEST(CacheSpill, AtTheCapPagesStayInMemory) {
  const TempFolder folder;
  const RetentionWork work(LargeShape(), 1600);
  RetentionRun plain(LargeShape(), "f16", work);
  RetentionRun run(LargeShape(), Spilling(folder, ",spill_mib=3"), work);
  const SequenceId id = *plain.cache->CreateSequence();
  ASSERT_EQ(*run.cache->CreateSequence(), id);
  plain.Feed(id, 1600);
  FeedWaiting(run, id, 1600);
  const LosslessStats stats = run.cache->Report().lossless;
  EXPECT_EQ(stats.pages_now, 46u);
  EXPECT_GT(stats.pages_spilled, 10u);
  EXPECT_LE(stats.bytes_spilled, uint64_t{3} << 20);
  EXPECT_LT(stats.pages_spilled, 46u);
  EXPECT_GT(stats.spill_refused, 0u);
  EXPECT_TRUE(plain.outputs == run.outputs);
}

class FullDisk final : public DiskSpace {
 public:
  int Allocate(int file, uint64_t offset, uint64_t bytes) override {
    return full ? ENOSPC : SystemDiskSpace()->Allocate(file, offset, bytes);
  }
  bool full = true;
};

TEST(CacheSpill, AFullDiskLeavesTheCacheWorking) {
  const TempFolder folder;
  const RetentionWork work(Shape(), 500);
  RetentionRun plain(Shape(), "f16", work);
  FullDisk disk;
  CacheServices services;
  services.disk = &disk;
  RetentionRun run(Shape(), Spilling(folder), work, {}, services);
  const SequenceId id = *plain.cache->CreateSequence();
  ASSERT_EQ(*run.cache->CreateSequence(), id);
  plain.Feed(id, 500);
  FeedWaiting(run, id, 400);
  EXPECT_EQ(run.cache->Report().lossless.pages_spilled, 0u);
  EXPECT_GT(run.cache->Report().lossless.pages_now, 20u);
  EXPECT_GT(run.cache->Report().lossless.spill_refused, 0u);
  EXPECT_EQ(run.cache->Report().lossless.fallbacks, 0u);
  disk.full = false;  // room again
  FeedWaiting(run, id, 500);
  EXPECT_EQ(run.cache->Report().lossless.pages_spilled, run.cache->Report().lossless.pages_now);
  EXPECT_TRUE(plain.outputs == run.outputs);
}

TEST(CacheSpill, AChangedByteOfTheFileIsAnErrorThatNamesThePage) {
  const TempFolder folder;
  const RetentionWork work(Shape(), 300);
  NotingWork noting;
  RetentionRun run(Shape(), Spilling(folder), work, {}, WithWork(&noting));
  const SequenceId id = *run.cache->CreateSequence();
  FeedWaiting(run, id, 256);
  const PackedPage* packed = noting.PackedAt(0, 48);
  ASSERT_NE(packed, nullptr);
  ASSERT_TRUE(packed->spilled);
  std::byte* victim = packed->data + packed->bytes / 2;
  *victim ^= std::byte{0x10};
  run.Begin(id, 1);
  ASSERT_OK(
      run.cache->Append(0, id, {work.keys[0].data(), 1, 0, 0}, {work.values[0].data(), 1, 0, 0}));
  std::vector<float> out(4 * 64);
  const AttendRequest request = {id, 1, work.queries[0].data(), 0, 0, out.data(), 0, 0, nullptr};
  const Status status = run.cache->Attend(0, {&request, 1}, {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  EXPECT_NE(status.message().find("layer 0, page at 48"), std::string::npos) << status.message();
  *victim ^= std::byte{0x10};
  run.Feed(id, 300);
  EXPECT_EQ(*run.cache->NextPosition(id), 300);
}

TEST(CacheSpill, AFileOfTheCacheSaysNothingOfTheSpillFile) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  const RetentionWork work(Shape(), 500);
  RetentionRun run(Shape(), Spilling(folder), work);
  const SequenceId id = *run.cache->CreateSequence();
  FeedWaiting(run, id, 400);
  ASSERT_OK(run.cache->Save(path, {}));
  EXPECT_EQ(ReadCacheFileInfo(path)->plan_text.find("spill"), std::string::npos);
  for (const std::string& plan : {std::string("f16"), Spilling(folder)}) {
    RetentionRun loaded(Shape(), plan, work);
    const SequenceId again = (*loaded.cache->Load(path, {}))[0].sequence;
    FeedWaiting(loaded, again, 420);
    EXPECT_EQ(loaded.cache->Report().lossless.pages_spilled > 0, plan != "f16");
    FeedWaiting(run, id, 420);
    EXPECT_TRUE(ReadAll(*loaded.cache, again) == ReadAll(*run.cache, id));
  }
}

TEST(CacheSpill, ClausesAreChecked) {
  const TempFolder folder;
  const std::string file = QuoteFileName(folder.File("spill"));
  const auto refused = [&](const std::string& plan) {
    CacheOptions options;
    options.plan = *ParsePlan(plan);
    const Status status = Cache::Create(Shape(), options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << plan;
    return status.message();
  };
  EXPECT_NE(refused("spill=" + file).find("spill= requires pack=store"), std::string::npos);
  EXPECT_NE(refused("pack=full,spill=" + file).find("spill= requires pack=store"),
            std::string::npos);
  EXPECT_NE(refused("pack=store,keep_mib=1").find("keep_mib= requires spill="), std::string::npos);
  EXPECT_NE(refused("pack=store,spill_mib=1").find("spill_mib= requires spill="),
            std::string::npos);
  EXPECT_FALSE(ParsePlan("pack=store,spill=a,spill_mib=0").ok());
  WriteFileBytes(folder.File("spill"), std::vector<std::byte>(5));
  EXPECT_NE(refused("pack=store,spill=" + file).find("spill"), std::string::npos);
  EXPECT_EQ(ReadFileBytes(folder.File("spill")).size(), 5u);
}

TEST(CacheSpillSlow, ResidentMemoryFalls) {
#ifdef VARVE_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const TempFolder folder;
  const CacheShape shape = ShapeOf(
      {.layers = 4, .kv_heads = 16, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  RowRandom random(3);
  const auto grown = [&](const std::string& plan) {
    const uint64_t start = ResidentBytes();
    auto cache = MakeCache(shape, plan);
    const SequenceId id = *cache->CreateSequence();
    std::vector<float> out(size_t{16} * 128);
    for (int64_t first = 0; first < 2048; first += 64) {
      const StepEntry entry = {id, 64};
      EXPECT_OK(cache->BeginStep({&entry, 1}));
      for (int layer = 0; layer < 4; ++layer) {
        const std::vector<float> rows = random.Gaussians(size_t{64} * 16 * 128);
        EXPECT_OK(cache->Append(layer, id, {rows.data(), 64, 0, 0}, {rows.data(), 64, 0, 0}));
        // Reads what is spilled.
        const AttendRequest request = {id, 1, rows.data(), 0, 0, out.data(), 0, 0, nullptr};
        EXPECT_OK(cache->Attend(layer, {&request, 1}, {}));
      }
      EXPECT_OK(cache->EndStep());
      cache->WaitForPacking();
    }
    return static_cast<int64_t>(ResidentBytes() - start);
  };
  const int64_t spilled = grown("pack=store,hot=0/64,spill=" + QuoteFileName(folder.File("spill")));
  const int64_t packed = grown("pack=store,hot=0/64");
  EXPECT_LT(spilled, packed - (int64_t{30} << 20));  // of 64 MiB raw
}

}  // namespace cache_spill_test
}  // namespace varve
