// pq rungs together with what else may happen to pages: windows, policies, packing and the cap.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cache/pq_cache_testing.h"

namespace varve {
namespace cache_pq_policy_test {

TEST(CachePqPolicy, AWindowDropsPagesOfCodes) {
  for (const char* plan :
       {"pq4,open=16,window=70,sink=20,exact=0", "pq4,window=64,exact=0",
        "k=pq16x5,v=pq16x6,open=0,window=33,exact=0", "age=pq4:32/pq2,open=0,window=64,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 180));
    EXPECT_GT(twin.cache().Stats().pages_dropped, 0u);
    ASSERT_OK(twin.Attend(0, id, 4));
  }
}

TEST(CachePqPolicy, PoliciesEvictPagesOfCodes) {
  for (const char* policy : {"h2o", "tova", "snapkv", "random"}) {
    SCOPED_TRACE(policy);
    RetentionRun run(PqShapeOfTests(),
                     "pq4,open=16,ratio=6,sink=16,recent=32,trigger=64,every=16,exact=0,evict=" +
                         std::string(policy),
                     PqWork(), WithPqCodebook());
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 200);
    EXPECT_OK(run.cache->EndPrompt(id));
    run.Feed(id, 300, 1);
    EXPECT_GT(run.cache->Report().retention.pages_evicted, 0u);
    EXPECT_GT(PagesIn(*run.cache, "pq32x8/pq16x8"), 0u);
    ExpectAttentionOfReadRows(*run.cache, id);
  }
}

TEST(CachePqPolicy, DemotesPagesOfWideCodes) {
  RetentionRun run(
      PqShapeOfTests(),
      "k=pq32x10,v=pq16x10,open=16,evict=demote,ratio=4,sink=16,recent=32,exact=0,trigger=64,"
      "every=16",
      PqWork(), WithPqCodebook());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 300);
  const CacheReport stats = run.cache->Report();
  EXPECT_GT(stats.retention.pages_demoted, 0u);
  for (const RungBytes& rung : stats.rungs) {
    EXPECT_TRUE(rung.rung == "f16" || rung.rung == "t3" || rung.rung == "pq32x10/pq16x10")
        << rung.rung;
  }
  const SequenceId fork = *run.cache->Fork(id);
  run.Feed(fork, 340, 1);
  ASSERT_OK(run.cache->Truncate(id, 150));
  run.Feed(id, 330);
  // Four bits of blocks are coarser in attention than codes; here only that it runs and is finite.
  for (const auto& [key, values] : run.outputs)
    for (const float x : values) ASSERT_TRUE(std::isfinite(x));
}

// A work that repeats: codes alike from page to page, so that packing gains.
RetentionWork Repeating(const CacheShape& shape, int64_t tokens) {
  RetentionWork work(shape, tokens);
  const auto repeat = [](std::vector<float>& rows, size_t row) {
    for (size_t i = row * 4; i < rows.size(); ++i) rows[i] = rows[i - row * 4];
  };
  for (size_t layer = 0; layer < work.keys.size(); ++layer) {
    repeat(work.keys[layer], static_cast<size_t>(shape.num_kv_heads) * shape.key_dim);
    repeat(work.values[layer], static_cast<size_t>(shape.num_kv_heads) * shape.value_dim);
  }
  return work;
}

TEST(CachePqPolicy, PackedPagesOfCodesComeBackBitForBit) {
  const RetentionWork work = Repeating(PqShapeOfTests(), 400);
  for (const char* rungs : {"pq4,open=16,exact=0", "k=pq16x5,v=pq16x6,open=0,exact=0",
                            "k=pq32x10,v=f16,open=0,exact=0", "k=f16,v=pq8x10,open=0,exact=0",
                            "pq2,open=0,h2o,ratio=20,trigger=64,exact=0,sink=16,recent=32"}) {
    SCOPED_TRACE(rungs);
    RetentionRun plain(PqShapeOfTests(), rungs, work, WithPqCodebook());
    RetentionRun packed(PqShapeOfTests(),
                        std::string(rungs) + ",pack=store,hot=16/32,bootstrap=16,step=32", work,
                        WithPqCodebook());
    const SequenceId id = *plain.cache->CreateSequence();
    ASSERT_EQ(*packed.cache->CreateSequence(), id);
    uint64_t most_packed = 0;
    packed.after_step = [&] {
      packed.cache->WaitForPacking();
      most_packed = std::max(most_packed, packed.cache->Report().lossless.pages_now);
    };
    for (RetentionRun* run : {&plain, &packed}) {
      run->Feed(id, 250);
      EXPECT_OK(run->cache->Truncate(id, 101));
      run->Feed(id, 200, 5);
      const SequenceId fork = *run->cache->Fork(id);
      EXPECT_OK(run->cache->RemoveRange(id, 60, 90));
      run->Feed(id, 300);
      run->Feed(fork, 300);
      EXPECT_OK(run->cache->Free(fork));
    }
    EXPECT_GT(most_packed, 0u);
    EXPECT_TRUE(plain.outputs == packed.outputs);
    EXPECT_TRUE(ReadAll(*plain.cache, id) == ReadAll(*packed.cache, id));
    const LosslessStats stats = packed.cache->Report().lossless;
    EXPECT_EQ(stats.fallbacks, 0u);
    EXPECT_EQ(stats.restore_failures, 0u);
    EXPECT_LT(stats.packed_bytes_now, stats.raw_bytes_now + 1);
  }
}

TEST(CachePqPolicy, TheCapHoldsWhileCodesReplaceExactPages) {
  CacheOptions options = WithPqCodebook();
  options.max_bytes = 96 << 10;
  RetentionRun run(PqShapeOfTests(), "pq4,open=32,exact=0", PqWork(), options);
  const SequenceId id = *run.cache->CreateSequence();
  int64_t position = 0;
  for (; position < 400; ++position) {
    const StepEntry entry = {id, 1};
    const Status status = run.cache->BeginStep({&entry, 1});
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
      break;
    }
    for (int layer = 0; layer < 2; ++layer) run.Layer(layer, id, position, 1);
    ASSERT_OK(run.cache->EndStep());
    EXPECT_LE(run.cache->Stats().bytes_held, options.max_bytes) << position;
  }
  // f16 pages alone would be full after 128 tokens.
  EXPECT_GT(position, 200);
  EXPECT_LT(position, 400);
  ExpectAttentionOfReadRows(*run.cache, id);
  ASSERT_OK(run.cache->Truncate(id, 60));
  run.Feed(id, 100);
  EXPECT_EQ(*run.cache->NextPosition(id), 100);
}

TEST(CachePqPolicy, BytesUsedAreThoseOfTheFormat) {
  RetentionRun run(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 64);
  // 4 pages, 2 layers, 2 heads, 16 tokens: a byte for two channels and a gain of two bytes, up to a
  // multiple of 64.
  EXPECT_EQ(run.cache->Stats().bytes_used, 4u * 2 * 2 * (16 * 34 + 32 + 16 * 18 + 32));
  EXPECT_EQ(RungBytesPerRow("pq4", Part::kKey, 64, 16).value(), 36.0);
  EXPECT_EQ(RungBytesPerRow("pq4", Part::kKey, 64, 64).value(), 34.0);
}

}  // namespace cache_pq_policy_test
}  // namespace varve
