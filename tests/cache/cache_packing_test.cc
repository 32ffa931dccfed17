// Packed pages: nothing that is computed may change, and nothing may be lost, whatever the workers
// do.

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "tests/cache/packing_testing.h"
#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_packing_test {

CacheShape Shape() {
  return ShapeOf({.layers = 3, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 64});
}

// Feeds the same to a cache with and one without packing, with forks, cuts and several turns, and
// compares everything that can be read.
void ExpectSame(const std::string& plan, const std::string& packed_plan, bool expect_packed) {
  SCOPED_TRACE(packed_plan);
  const RetentionWork work(Shape(), 700);
  RetentionRun plain(Shape(), plan, work);
  RetentionRun packed(Shape(), packed_plan, work);
  const SequenceId a = *plain.cache->CreateSequence();
  const SequenceId b = *packed.cache->CreateSequence();
  ASSERT_EQ(a, b);
  uint64_t most_packed = 0;
  const auto both = [&](const auto& call) {
    call(plain);
    packed.cache->WaitForPacking();
    call(packed);
    most_packed = std::max(most_packed, packed.cache->Report().lossless.pages_now);
  };
  both([&](RetentionRun& run) { run.Feed(a, 400); });
  both([&](RetentionRun& run) { run.Feed(a, 430, 1); });
  both([&](RetentionRun& run) { EXPECT_OK(run.cache->Truncate(a, 207)); });
  both([&](RetentionRun& run) { run.Feed(a, 500); });
  both([&](RetentionRun& run) { EXPECT_OK(run.cache->RemoveRange(a, 90, 130)); });
  SequenceId fork;
  both([&](RetentionRun& run) { fork = *run.cache->Fork(a); });
  both([&](RetentionRun& run) { run.Feed(fork, 600, 7); });
  both([&](RetentionRun& run) { run.Feed(a, 560); });
  EXPECT_TRUE(plain.outputs == packed.outputs);
  EXPECT_TRUE(ReadAll(*plain.cache, a) == ReadAll(*packed.cache, a));
  EXPECT_TRUE(ReadAll(*plain.cache, fork) == ReadAll(*packed.cache, fork));
  both([&](RetentionRun& run) { EXPECT_OK(run.cache->Free(a)); });
  both([&](RetentionRun& run) { run.Feed(fork, 700); });
  EXPECT_TRUE(plain.outputs == packed.outputs);
  const CacheReport stats = packed.cache->Report();
  EXPECT_EQ(stats.lossless.fallbacks, 0u);
  EXPECT_EQ(stats.lossless.restore_failures, 0u);
  EXPECT_EQ(most_packed > 0, expect_packed);
  EXPECT_OK(packed.cache->Free(fork));
  packed.cache->WaitForPacking();
  EXPECT_EQ(packed.cache->Report().bytes_used, 0u);
  EXPECT_EQ(packed.cache->Report().lossless.decode_cache_bytes, 0u);
  EXPECT_EQ(packed.cache->Report().pages, 0u);
}

TEST(CachePacking, ChangesNoResultInAnyRung) {
  for (const char* rungs :
       {"f16", "f32", "bf16", "q8_0", "q4_0,exact=0", "q8_0r", "q4_0r,exact=0", "t4,exact=0",
        "t3,exact=0", "t2,exact=0", "k=f16,v=f32", "open_rung=bf16,bf16", "open=64,q8_0"}) {
    ExpectSame(rungs, std::string(rungs) + ",pack=store,hot=16/32,bootstrap=16,step=32",
               std::string(rungs).find_first_of("qt") ==
                   std::string::npos);  // noise in few bits gains nothing
  }
}

TEST(CachePacking, ChangesNoResultWithPoliciesAndAges) {
  for (const char* rules :
       {"evict=h2o,ratio=2.5,sink=16,recent=32,trigger=128", "window=200,sink=32",
        "evict=demote,ratio=1.3,sink=16,recent=32,trigger=128,exact=0", "age=f32:128/f16",
        "evict=window,ratio=2,sink=16,recent=32,trigger=128"}) {
    ExpectSame(rules, std::string(rules) + ",pack=store,hot=16/32,bootstrap=16,step=32", true);
  }
}

TEST(CachePackingSlow, ChangesNoResultWhateverTheDecodeCacheAndTheWorkers) {
  for (const char* settings :
       {"decode_cache=0", "decode_cache=1", "decode_cache=5,prefetch=0", "decode_cache=9",
        "decode_cache=1000", "pack_threads=3,decode_cache=9", "pack_queue=1"}) {
    ExpectSame("f16", "pack=store,hot=16/32,bootstrap=16,step=32," + std::string(settings), true);
  }
  ExpectSame("f16", "pack=full,hot=16/32,step=32", false);
  ExpectSame("f16", "pack=probe,hot=16/32,step=32", false);
}

TEST(CachePacking, PacksWholePagesOfTheColdZoneOnly) {
  const RetentionWork work(Shape(), 256);
  RetentionRun run(Shape(), "1: pack=store,hot=20/70,bootstrap=16,step=16,decode_cache=0", work);
  run.after_step = [&] { run.cache->WaitForPacking(); };
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 256);
  run.cache->WaitForPacking();
  const CacheReport stats = run.cache->Report();
  // 16 pages of one layer; those at 0 and 16 touch the first 20 tokens, those from 176 on the last
  // 70. Layers 0 and 2 have no clause.
  EXPECT_EQ(stats.lossless.pages_now, 9u);
  EXPECT_EQ(stats.lossless.layers, 1);
  EXPECT_EQ(stats.lossless.raw_bytes_now, 9u * 16 * 2 * 128 * 2);
  EXPECT_GT(stats.lossless.strips_unpacked, 0u);
  EXPECT_LT(stats.lossless.packed_bytes_now, stats.lossless.raw_bytes_now);
}

TEST(CachePacking, GroupsHaveTheSizesOfThePlan) {
  const RetentionWork work(Shape(), 400);
  RetentionRun run(Shape(), "0: pack=store,hot=0/0,bootstrap=48,step=96", work);
  const SequenceId id = *run.cache->CreateSequence();
  std::vector<uint64_t> sizes;
  uint64_t packed = 0;
  for (int64_t position = 16; position <= 400; position += 16) {
    run.Feed(id, position);
    run.cache->WaitForPacking();
    const uint64_t now = run.cache->Report().lossless.pages_packed;
    if (now != packed) sizes.push_back(now - packed);
    packed = now;
  }
  EXPECT_EQ(sizes, std::vector<uint64_t>({3, 6, 6, 6}));
}

TEST(CachePacking, TheDecodeCacheKeepsToItsPages) {
  const RetentionWork work(Shape(), 512);
  for (const bool prefetch : {false, true}) {
    RetentionRun run(Shape(),
                     "bf16,open_rung=bf16,pack=store,hot=16/32,step=32,decode_cache=4,prefetch=" +
                         std::to_string(prefetch ? 1 : 0),
                     work);
    const SequenceId id = *run.cache->CreateSequence();
    run.after_step = [&] {
      run.cache->WaitForPacking();
      // A quarter more while workers restore ahead.
      EXPECT_LE(run.cache->Report().lossless.decode_cache_bytes, (prefetch ? 5u : 4u) * 8192);
    };
    run.Feed(id, 512, 16);
    const LosslessStats stats = run.cache->Report().lossless;
    EXPECT_GT(stats.decode_cache_hits, 0u);
    EXPECT_GT(stats.decode_cache_misses, 0u);
    EXPECT_GT(stats.pages_restored, 0u);
    EXPECT_EQ(prefetch, stats.pages_prefetched > 0);
  }
}

TEST(CachePacking, ALayerKeepsItsOwnPagesAndNoMore) {
  const RetentionWork work(Shape(), 512);
  RetentionRun plain(Shape(), "bf16,open_rung=bf16", work);
  plain.Feed(*plain.cache->CreateSequence(), 512, 16);
  RetentionRun run(Shape(),
                   "0: bf16,open_rung=bf16,pack=store,hot=16/32,step=32,layer_cache=1,prefetch=0; "
                   "1: bf16,open_rung=bf16,pack=store,hot=16/32,step=32,layer_cache=3; "
                   "2: bf16,open_rung=bf16,pack=store,hot=16/32,step=32",
                   work);
  const SequenceId id = *run.cache->CreateSequence();
  run.after_step = [&] {
    run.cache->WaitForPacking();
    EXPECT_LE(run.cache->Report().lossless.decode_cache_bytes, 4u * 8192);
  };
  run.Feed(id, 512, 16);
  const LosslessStats stats = run.cache->Report().lossless;
  EXPECT_EQ(stats.decode_cache_bytes, 4u * 8192);
  EXPECT_EQ(stats.pages_restored, 4u);  // and none made room for another
  EXPECT_GT(stats.decode_cache_hits, 40u);
  EXPECT_TRUE(plain.outputs == run.outputs);
}

// A decode cache as large as the original asks for: it may not cost what packing saves.
TEST(CachePacking, StoreNeverHoldsMoreThanFull) {
  const RetentionWork work(Shape(), 512);
  for (const char* cache : {"decode_cache=64", "decode_cache=64,prefetch=0", "decode_cache=2"}) {
    SCOPED_TRACE(cache);
    const std::string rest = std::string(",hot=16/32,bootstrap=16,step=32,") + cache;
    RetentionRun full(Shape(), "pack=full" + rest, work);
    RetentionRun store(Shape(), "pack=store" + rest, work);
    const SequenceId a = *full.cache->CreateSequence();
    const SequenceId b = *store.cache->CreateSequence();
    for (int64_t tokens = 16; tokens <= 512; tokens += 16) {
      full.Feed(a, tokens);
      store.Feed(b, tokens);
      full.cache->WaitForPacking();
      store.cache->WaitForPacking();
      ASSERT_LE(store.cache->Stats().bytes_held, full.cache->Stats().bytes_held + 64 * 1024)
          << tokens;
    }
    EXPECT_LT(store.cache->Stats().bytes_held, full.cache->Stats().bytes_held);
    EXPECT_TRUE(full.outputs.begin()->second == store.outputs.begin()->second);
  }
}

TEST(CachePacking, AFullQueuePutsGroupsOffAndLosesNothing) {
  const RetentionWork work(Shape(), 600);
  RetentionRun plain(Shape(), "f16", work);
  std::atomic<bool> open{false};
  InterruptedWork waiting([&] { return WaitFor(open); });
  RetentionRun run(Shape(), "pack=store,hot=16/32,bootstrap=16,step=16,pack_queue=1", work, {},
                   WithWork(&waiting));
  const SequenceId id = *run.cache->CreateSequence();
  plain.Feed(*plain.cache->CreateSequence(), 500);
  run.Feed(id, 500);
  EXPECT_GT(run.cache->Report().lossless.backpressure_skips, 0u);
  EXPECT_EQ(run.cache->Report().lossless.pages_now, 0u);
  EXPECT_EQ(run.cache->Report().lossless.queue_peak, 1u);
  EXPECT_TRUE(plain.outputs == run.outputs);
  open = true;
  run.after_step = [&] { run.cache->WaitForPacking(); };
  run.Feed(id, 600);
  plain.Feed(id, 600);
  EXPECT_GT(run.cache->Report().lossless.pages_now, 20u);
  EXPECT_EQ(run.cache->Report().lossless.fallbacks, 0u);
  EXPECT_TRUE(plain.outputs == run.outputs);
}

TEST(CachePacking, AWorkerThatFailsLeavesThePagesAsTheyWere) {
  const RetentionWork work(Shape(), 500);
  RetentionRun plain(Shape(), "f16", work);
  std::atomic<int> calls{0};
  InterruptedWork failing([&]() -> Status {
    const int call = calls++;
    if (call % 3 == 0) return Internal("injected");
    if (call % 3 == 1) throw std::runtime_error("injected");
    return Status();
  });
  RetentionRun run(Shape(), "pack=store,hot=16/32,bootstrap=16,step=16", work, {},
                   WithWork(&failing));
  const SequenceId id = *run.cache->CreateSequence();
  plain.Feed(*plain.cache->CreateSequence(), 500);
  run.after_step = [&] { run.cache->WaitForPacking(); };
  run.Feed(id, 500);
  const LosslessStats stats = run.cache->Report().lossless;
  EXPECT_GT(stats.fallbacks, 0u);
  EXPECT_GT(stats.pages_now, 0u);
  EXPECT_TRUE(plain.outputs == run.outputs);
  EXPECT_TRUE(ReadAll(*plain.cache, id) == ReadAll(*run.cache, id));
}

TEST(CachePacking, ACorruptedPageIsAnErrorThatNamesItAndRollsTheStepBack) {
  const RetentionWork work(Shape(), 300);
  NotingWork noting;
  RetentionRun run(Shape(), "1: pack=store,hot=0/32,bootstrap=16,step=16,decode_cache=0", work, {},
                   WithWork(&noting));
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 256);
  run.cache->WaitForPacking();
  ASSERT_GT(run.cache->Report().lossless.pages_now, 4u);
  const SequenceInfo before = *run.cache->Describe(id, 1);
  const PackedPage* packed = noting.PackedAt(1, 48);
  ASSERT_NE(packed, nullptr);
  std::byte* victim = packed->data + packed->bytes / 2;
  *victim ^= std::byte{0x10};

  const StepEntry step = {id, 1};
  ASSERT_OK(run.cache->BeginStep({&step, 1}));
  run.Layer(0, id, 256, 1);
  ASSERT_OK(
      run.cache->Append(1, id, {work.keys[1].data(), 1, 0, 0}, {work.values[1].data(), 1, 0, 0}));
  std::vector<float> out(4 * 64);
  const AttendRequest request = {id, 1, work.queries[1].data(), 0, 0, out.data(), 0, 0, nullptr};
  const Status status = run.cache->Attend(1, {&request, 1}, {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  for (const char* part : {"layer 1", "page at 48", "head"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(*run.cache->NextPosition(id), 256);
  EXPECT_EQ(run.cache->Describe(id, 1)->pages.size(), before.pages.size());
  std::vector<float> rows(300 * 64);
  EXPECT_FALSE(run.cache->ReadRows(id, 1, 1, Part::kKey, 0, 256, rows.data()).ok() &&
               run.cache->ReadRows(id, 1, 0, Part::kValue, 0, 256, rows.data()).ok() &&
               run.cache->ReadRows(id, 1, 0, Part::kKey, 0, 256, rows.data()).ok() &&
               run.cache->ReadRows(id, 1, 1, Part::kValue, 0, 256, rows.data()).ok());

  // The page as it was: everything goes on.
  *victim ^= std::byte{0x10};
  run.Feed(id, 300);
  EXPECT_EQ(*run.cache->NextPosition(id), 300);
}

TEST(CachePacking, ProbeAndFullTellTheRatioAndKeepThePages) {
  const RetentionWork work(Shape(), 400);
  RetentionRun plain(Shape(), "f16", work);
  plain.Feed(*plain.cache->CreateSequence(), 400);
  for (const char* mode : {"probe", "full"}) {
    RetentionRun run(Shape(), "hot=16/32,step=64,pack=" + std::string(mode), work);
    run.Feed(*run.cache->CreateSequence(), 400);
    run.cache->WaitForPacking();
    const CacheReport stats = run.cache->Report();
    EXPECT_EQ(stats.lossless.pages_now, 0u);
    EXPECT_GT(stats.lossless.pages_packed, 30u);
    EXPECT_LT(stats.lossless.compressed_bytes, stats.lossless.raw_bytes);
    EXPECT_GT(stats.lossless.decompress_us, 0.0);
    EXPECT_EQ(stats.bytes_used, plain.cache->Report().bytes_used);
  }
}

TEST(CachePacking, BytesHeldFallAndAreCounted) {
  const CacheShape shape = ShapeOf(
      {.layers = 2, .kv_heads = 8, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  const RetentionWork work(shape, 1600);
  RetentionRun plain(shape, "f16", work);
  RetentionRun run(shape, "pack=store,hot=0/64,decode_cache=0", work);
  plain.attends = run.attends = false;
  plain.Feed(*plain.cache->CreateSequence(), 1600);
  run.after_step = [&] { run.cache->WaitForPacking(); };
  run.Feed(*run.cache->CreateSequence(), 1600);
  const CacheReport stats = run.cache->Report();
  const uint64_t before = plain.cache->Report().bytes_held;
  EXPECT_LT(stats.bytes_held, before * 9 / 10);
  EXPECT_GE(stats.bytes_held, stats.bytes_used + stats.lossless.dictionary_bytes);
  EXPECT_LE(stats.bytes_held, stats.bytes_used + stats.lossless.dictionary_bytes + (1u << 20));
}

TEST(CachePackingSlow, TwoThousandStepsInSeveralTurnsAreBitForBitTheSame) {
  const CacheShape shape =
      ShapeOf({.layers = 4, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 64, .page = 32});
  const auto plan = [&](const std::string& clauses) {
    return "0-1: " + clauses + "; 2-: evict=h2o,sink=16,recent=96,ratio=3.5,trigger=384," + clauses;
  };
  const RetentionWork work(shape, 4200);
  RetentionRun plain(shape, plan("page=32"), work);
  RetentionRun packed(
      shape, plan("page=32,pack=store,hot=16/96,bootstrap=16,step=384,decode_cache=3"), work);
  const SequenceId id = *plain.cache->CreateSequence();
  ASSERT_EQ(*packed.cache->CreateSequence(), id);
  // Four turns: a prompt in pieces, then 500 steps of one token each.
  for (int64_t turn = 0; turn < 4; ++turn) {
    for (RetentionRun* run : {&plain, &packed}) {
      run->Feed(id, turn * 1050 + 550);
      EXPECT_OK(run->cache->EndPrompt(id));
      run->Feed(id, turn * 1050 + 1050, 1);
    }
    EXPECT_TRUE(plain.outputs == packed.outputs) << turn;
  }
  EXPECT_TRUE(ReadAll(*plain.cache, id) == ReadAll(*packed.cache, id));
  const LosslessStats stats = packed.cache->Report().lossless;
  EXPECT_GT(stats.pages_restored, 0u);
  EXPECT_GT(stats.strips_unpacked, 10000u);
  EXPECT_EQ(stats.fallbacks, 0u);
  EXPECT_EQ(stats.restore_failures, 0u);
}

TEST(CachePackingSlow, ResidentMemoryFallsWhenPagesArePacked) {
#ifdef VARVE_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const CacheShape shape = ShapeOf(
      {.layers = 4, .kv_heads = 32, .group = 1, .key_dim = 128, .value_dim = 128, .page = 64});
  RowRandom random(3);
  const auto grown = [&](const std::string& plan) {
#ifdef __GLIBC__
    malloc_trim(0);  // what earlier tests have freed must not go meanwhile
#endif
    const uint64_t start = ResidentBytes();
    auto cache = MakeCache(shape, plan);
    const SequenceId id = *cache->CreateSequence();
    for (int64_t first = 0; first < 4096; first += 64) {
      const StepEntry entry = {id, 64};
      EXPECT_OK(cache->BeginStep({&entry, 1}));
      for (int layer = 0; layer < 4; ++layer) {
        const std::vector<float> rows = random.Gaussians(size_t{64} * 32 * 128);
        EXPECT_OK(cache->Append(layer, id, {rows.data(), 64, 0, 0}, {rows.data(), 64, 0, 0}));
      }
      EXPECT_OK(cache->EndStep());
      cache->WaitForPacking();
    }
    const auto resident = static_cast<int64_t>(ResidentBytes() - start);
    const CacheReport stats = cache->Report();
    EXPECT_NEAR(static_cast<double>(resident), static_cast<double>(stats.bytes_held),
                static_cast<double>(stats.bytes_held) / 8 + (32 << 20));
    return resident;
  };
  const int64_t plain = grown("f16");
  const int64_t packed = grown("pack=store,hot=0/64");
  EXPECT_GE(plain, int64_t{220} << 20);           // 256 MiB
  EXPECT_LT(packed, plain - (int64_t{8} << 20));  // 37 MB less
}

TEST(CachePacking, TheCapCoversPackedBytesAndTheDecodeCacheMakesRoom) {
  const RetentionWork work(Shape(), 700);
  const std::string plan = "pack=store,hot=0/32,bootstrap=16,step=16,decode_cache=1000";
  const auto most_tokens = [&](uint64_t cap) {
    CacheOptions options;
    options.max_bytes = cap;
    RetentionRun run(Shape(), plan, work, options);
    const SequenceId id = *run.cache->CreateSequence();
    int64_t tokens = 0;
    for (; tokens < 700; ++tokens) {
      const StepEntry entry = {id, 1};
      if (!run.cache->BeginStep({&entry, 1}).ok()) break;
      for (int layer = 0; layer < 3; ++layer) run.Layer(layer, id, tokens, 1);
      EXPECT_OK(run.cache->EndStep());
      run.cache->WaitForPacking();
      EXPECT_LE(run.cache->Report().bytes_held,
                cap + run.cache->Report().lossless.dictionary_bytes + 4 * 8192);
    }
    return tokens;
  };
  // 3 layers of 8 KiB a page of 16 tokens: raw, 640 KiB hold 26 of them, packed some more.
  const int64_t tokens = most_tokens(640 << 10);
  EXPECT_GE(tokens, 26 * 16);
  EXPECT_LT(tokens, 700);
}

TEST(CachePacking, PagesOfDifferentRungsInALayerArePackedApart) {
  // Pages large enough for every rung to have a slot size of its own; demote mixes them.
  const CacheShape shape =
      ShapeOf({.layers = 1, .kv_heads = 4, .group = 1, .key_dim = 64, .value_dim = 64, .page = 64});
  const RetentionWork work(shape, 2400);
  const std::string rules = "evict=demote,ratio=2.2,sink=16,recent=64,trigger=1024,exact=0";
  RetentionRun plain(shape, rules, work);
  RetentionRun run(shape, rules + ",pack=store,hot=16/64,bootstrap=64,step=64,decode_cache=4",
                   work);
  const SequenceId id = *plain.cache->CreateSequence();
  ASSERT_EQ(*run.cache->CreateSequence(), id);
  plain.Feed(id, 2400);
  uint64_t most_packed = 0;
  run.after_step = [&] {
    run.cache->WaitForPacking();
    most_packed = std::max(most_packed, run.cache->Report().lossless.pages_now);
  };
  run.Feed(id, 2400);
  EXPECT_TRUE(plain.outputs == run.outputs);
  EXPECT_EQ(run.cache->Report().lossless.fallbacks, 0u);
  EXPECT_GT(most_packed, 0u);
  EXPECT_GT(run.cache->Report().retention.pages_demoted, 0u);
}

// Truncate meets pages that are with a worker, packed since, restored ahead, or shared with a fork.
TEST(CachePacking, ACutPageGrowsTheSameWhateverTheWorkersHaveDone) {
  const RetentionWork work(Shape(), 400);
  for (const char* settings :
       {"decode_cache=0", "decode_cache=12", "pack_threads=2,decode_cache=12"}) {
    for (const bool slow : {false, true}) {
      SCOPED_TRACE(settings);
      RetentionRun plain(Shape(), "f16", work);
      std::atomic<bool> open{!slow};
      InterruptedWork waiting([&] { return WaitFor(open); });
      RetentionRun run(Shape(), "pack=store,hot=0/16,bootstrap=16,step=16," + std::string(settings),
                       work, {}, WithWork(&waiting));
      const SequenceId id = *plain.cache->CreateSequence();
      ASSERT_EQ(*run.cache->CreateSequence(), id);
      for (RetentionRun* each : {&plain, &run}) {
        each->Feed(id, 300);
        const SequenceId fork = *each->cache->Fork(id);
        EXPECT_OK(each->cache->Truncate(id, 133));
        open = true;
        each->Feed(fork, 320, 1);
        each->cache->WaitForPacking();
        // A step that is given up puts the cut page back.
        const StepEntry entry = {id, 1};
        EXPECT_OK(each->cache->BeginStep({&entry, 1}));
        each->Layer(0, id, 133, 1);
        each->cache->AbortStep();
        each->Feed(id, 180, 1);
        EXPECT_OK(each->cache->Truncate(id, 70));
        each->Feed(id, 400);
        EXPECT_OK(each->cache->Free(fork));
        each->Feed(id, 400);
      }
      EXPECT_TRUE(plain.outputs == run.outputs);
      EXPECT_EQ(plain.PagesOf(id, 1), run.PagesOf(id, 1));
      EXPECT_OK(run.cache->Free(id));
      run.cache->WaitForPacking();
      EXPECT_EQ(run.cache->Report().pages, 0u);
      EXPECT_EQ(run.cache->Report().bytes_used, 0u);
      EXPECT_EQ(run.cache->Report().lossless.decode_cache_bytes, 0u);
    }
  }
}

TEST(CachePacking, ClausesOfPackingNeedPack) {
  for (const char* plan :
       {"hot=16/32", "bootstrap=5", "step=7", "decode_cache=3", "pack_queue=2"}) {
    CacheOptions options;
    options.plan = *ParsePlan(plan);
    const Status status = Cache::Create(Shape(), options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("requires pack="), std::string::npos) << status.message();
  }
  EXPECT_FALSE(ParsePlan("pack=store,pack_threads=65").ok());
  EXPECT_FALSE(ParsePlan("pack=store,prefetch=2").ok());
}

}  // namespace cache_packing_test
}  // namespace varve
