// Pages at rest (idle=): they have the form that the plan says and no other, hold the bytes that
// the estimate says, are shared as any page is, and go through files and images.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cache/pq_cache_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/plan_estimate.h"

namespace varve {
namespace cache_rest_test {

constexpr int64_t kPage = 16;  // PqShapeOfTests

RetentionRun RunOf(const std::string& plan, uint64_t max_bytes = 0) {
  CacheOptions options = WithPqCodebook();
  options.num_threads = 2;
  options.max_bytes = max_bytes;
  return RetentionRun(PqShapeOfTests(), plan, PqWork(), options);
}

// "idle t3/t2 x3, open f16/f16 x1": pages of layer 0 in order.
std::string Forms(const Cache& cache, SequenceId id) {
  std::string text;
  std::string last;
  int count = 0;
  const auto flush = [&] {
    if (count == 0) return;
    text += (text.empty() ? "" : ", ") + last + " x" + std::to_string(count);
    count = 0;
  };
  const SequenceInfo info = *cache.Describe(id, 0);
  EXPECT_EQ(info.forms.size(), info.pages.size());
  for (const PageForm& form : info.forms) {
    const std::string now = std::string(form.state) + " " + form.k + "/" + form.v;
    if (now != last) flush();
    last = now;
    ++count;
  }
  flush();
  return text;
}

void ExpectSame(RetentionRun& a, SequenceId a_id, RetentionRun& b, SequenceId b_id) {
  for (int layer = 0; layer < 2; ++layer) {
    const std::vector<float>& outputs = a.outputs[{a_id.value, layer}];
    EXPECT_FALSE(outputs.empty());
    EXPECT_TRUE(outputs == (b.outputs[{b_id.value, layer}])) << "layer " << layer;
  }
  EXPECT_TRUE(ReadAll(*a.cache, a_id) == ReadAll(*b.cache, b_id));
}

TEST(CacheRest, BringsFullPagesToTheFormOfIdleAndNoOthers) {
  RetentionRun run = RunOf("q8_0,open=32,idle_k=t3,idle_v=t2,exact=16");
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 10 * kPage + 5);
  EXPECT_EQ(Forms(*run.cache, id),
            "exact f16/f16 x1, sealed q8_0/q8_0 x7, open f16/f16 x2, filling f16/f16 x1");
  EXPECT_EQ(*run.cache->Rest(id, 3 * kPage - 1, 5 * kPage + 1), 2 * 2);  // two layers
  EXPECT_EQ(Forms(*run.cache, id),
            "exact f16/f16 x1, sealed q8_0/q8_0 x2, idle t3/t2 x2, sealed q8_0/q8_0 x3, "
            "open f16/f16 x2, filling f16/f16 x1");
  EXPECT_EQ(*run.cache->Rest(id, 0, 10 * kPage + 5), 7 * 2);
  EXPECT_EQ(Forms(*run.cache, id), "exact f16/f16 x1, idle t3/t2 x9, filling f16/f16 x1");
  EXPECT_EQ(*run.cache->Rest(id, 0, 10 * kPage + 5), 0);
  // It goes on; no age changes what is at rest.
  run.Feed(id, 20 * kPage);
  EXPECT_EQ(Forms(*run.cache, id),
            "exact f16/f16 x1, idle t3/t2 x9, sealed q8_0/q8_0 x8, open f16/f16 x2");
}

TEST(CacheRest, HoldsWhatTheEstimateSays) {
  const char* const plan = "t4,idle_k=t3,idle_v=t2,open=32";
  RetentionRun run = RunOf(plan);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 20 * kPage);
  const PlanCost cost = *EstimatePlan(*ParsePlan(plan), PqShapeOfTests(), {}, 20 * kPage);
  EXPECT_EQ(HeldBytes(*run.cache), cost.bytes);
  ASSERT_OK(run.cache->Rest(id, 0, 20 * kPage).status());
  EXPECT_EQ(HeldBytes(*run.cache), cost.idle_bytes);
  EXPECT_EQ(run.cache->Stats().bytes_held, cost.idle_bytes);
  EXPECT_LT(cost.idle_bytes, cost.bytes);
  ASSERT_TRUE(cost.ranges[0].idle.has_value());
  EXPECT_EQ(cost.ranges[0].idle->pages, 16);  // all but exact=64
}

// A page that goes to rest while it is exact is what a plan with that rung would have made of it.
TEST(CacheRest, IsTheRungItself) {
  RetentionRun run = RunOf("f16,idle_k=t3,idle_v=t2,exact=0");
  RetentionRun sealed = RunOf("k=t3,v=t2,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  const SequenceId b = *sealed.cache->CreateSequence();
  run.Feed(a, 10 * kPage);
  sealed.Feed(b, 10 * kPage);
  ASSERT_OK(run.cache->Rest(a, 0, 10 * kPage).status());
  EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*sealed.cache, b));
  run.outputs.clear();
  sealed.outputs.clear();
  run.Feed(a, 11 * kPage - 1, 3);
  sealed.Feed(b, 11 * kPage - 1, 3);
  ExpectSame(run, a, sealed, b);
}

// One that was sealed before is encoded anew from its sealed form, as age does it.
TEST(CacheRest, IsADemotionLikeThatOfAge) {
  RetentionRun run = RunOf("t4,idle=t2,exact=0");
  RetentionRun aged = RunOf("age=t4:16/t2,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  const SequenceId b = *aged.cache->CreateSequence();
  run.Feed(a, 10 * kPage);
  aged.Feed(b, 10 * kPage);
  ASSERT_OK(run.cache->Rest(a, 0, 9 * kPage).status());
  EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*aged.cache, b));
}

TEST(CacheRest, ForksShareWhatIsAtRest) {
  RetentionRun run = RunOf("t4,idle=t2,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 8 * kPage);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(b, 9 * kPage);
  const uint64_t before = HeldBytes(*run.cache);
  const CacheReport report = run.cache->Report();
  EXPECT_EQ(*run.cache->Rest(a, 0, 8 * kPage), 8 * 2);
  EXPECT_GT(HeldBytes(*run.cache), before);  // b has the old ones still
  EXPECT_EQ(*run.cache->Rest(b, 0, 8 * kPage), 8 * 2);
  EXPECT_LT(HeldBytes(*run.cache), before);
  const CacheReport after = run.cache->Report();
  EXPECT_EQ(after.pages, report.pages);
  EXPECT_EQ(after.pages_demoted - report.pages_demoted, 16u);
  EXPECT_EQ(after.pages_adopted - report.pages_adopted, 16u);
  // A fork of what is at rest copies nothing.
  const SequenceId c = *run.cache->Fork(a);
  EXPECT_EQ(Forms(*run.cache, c), "idle t2/t2 x8");
  EXPECT_EQ(run.cache->Report().pages, report.pages);
}

TEST(CacheRest, AgreesWithTheReferenceModelWhateverComesNext) {
  for (const char* plan : {"q8_0,idle=q4_0,exact=0", "age=f16:20/q8_0,idle_v=t2",
                           "t4,open=40,idle_k=t3,idle_v=t2,exact=20", "q8_0,window=60,idle=t3",
                           "0: f16; 1-: q4_0,idle=t2,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(ShapeOf({.layers = 2, .key_dim = 64, .value_dim = 32}), plan);
    const SequenceId a = twin.Create();
    ASSERT_OK(twin.Grow(a, 100));
    const SequenceId b = *twin.Fork(a);
    ASSERT_OK(twin.Rest(a, 0, 80));
    ASSERT_OK(twin.Grow(a, 37));
    ASSERT_OK(twin.Grow(b, 50));
    ASSERT_OK(twin.Rest(b, 16, 150));
    ASSERT_OK(twin.Truncate(a, 70));
    ASSERT_OK(twin.Grow(a, 20));
    ASSERT_OK(twin.RemoveRange(b, 30, 45));
    ASSERT_OK(twin.Rest(b, 0, 150));
    ASSERT_OK(twin.Grow(b, 20));
  }
}

TEST(CacheRest, GoesThroughFiles) {
  for (const char* plan : {"t4,idle_k=t3,idle_v=t2,exact=16", "f16,idle=pq4,exact=0",
                           "q8_0,idle=t3,pack=store,hot=0/0,bootstrap=16,step=16,exact=0"}) {
    SCOPED_TRACE(plan);
    const TempFolder folder;
    RetentionRun run = RunOf(plan);
    const SequenceId a = *run.cache->CreateSequence();
    run.Feed(a, 10 * kPage + 3);
    ASSERT_OK(run.cache->Rest(a, 0, 8 * kPage).status());
    run.cache->WaitForPacking();
    ASSERT_OK(run.cache->Save(folder.File("a.varve"), {}));
    RetentionRun other = RunOf(plan);
    const SequenceId b = other.cache->Load(folder.File("a.varve"), {})->front().sequence;
    // What is still in the file is read and goes to rest, too.
    ASSERT_OK(run.cache->Rest(a, 0, 10 * kPage).status());
    ASSERT_OK(other.cache->Rest(b, 0, 10 * kPage).status());
    EXPECT_EQ(Forms(*other.cache, b), Forms(*run.cache, a));
    run.outputs.clear();
    run.Feed(a, 12 * kPage);
    other.Feed(b, 12 * kPage);
    ExpectSame(run, a, other, b);
  }
}

TEST(CacheRest, ImagesCanBeInTheFormOfRest) {
  const char* const plan = "t4,open=32,idle_k=t3,idle_v=t2,exact=16";
  RetentionRun run = RunOf(plan);
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 6 * kPage);
  const SequenceId fork = *run.cache->Fork(a);
  ASSERT_OK(run.cache->Rest(fork, 0, 6 * kPage).status());
  RetentionRun other = RunOf(plan);
  const SequenceId b = *other.cache->CreateSequence();
  for (int64_t at = 0; at < 6 * kPage; at += kPage) {
    const auto settled = run.cache->ExportPages(a, at, at + kPage, {.settled = true});
    const auto resting = run.cache->ExportPages(a, at, at + kPage, {.resting = true});
    ASSERT_OK(resting.status());
    EXPECT_EQ(resting->size() < settled->size(), at > 0);
    // An image of what is at rest is the same image.
    EXPECT_EQ(*resting, *run.cache->ExportPages(fork, at, at + kPage));
    ASSERT_OK(other.cache->ImportPages(b, *resting));
  }
  EXPECT_EQ(Forms(*other.cache, b), "exact f16/f16 x1, idle t3/t2 x5");
  EXPECT_TRUE(ReadAll(*other.cache, b) == ReadAll(*run.cache, fork));
  // The sequence that was asked has not changed.
  EXPECT_EQ(Forms(*run.cache, a), "exact f16/f16 x1, sealed t4/t4 x3, open f16/f16 x2");
}

TEST(CacheRest, PacksWhatIsAtRest) {
  RetentionRun run = RunOf("q8_0,idle=q4_0,pack=store,hot=0/32,bootstrap=16,step=16,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 12 * kPage);
  run.cache->WaitForPacking();
  const uint64_t packed = run.cache->Report().lossless.pages_packed;
  EXPECT_GT(packed, 0u);
  ASSERT_OK(run.cache->Rest(a, 0, 12 * kPage).status());
  const std::vector<float> rows = ReadAll(*run.cache, a);
  run.cache->WaitForPacking();
  EXPECT_EQ(run.cache->Report().lossless.pages_packed - packed, 10u * 2);  // all but the hot ones
  EXPECT_TRUE(ReadAll(*run.cache, a) == rows);
  EXPECT_EQ(Forms(*run.cache, a), "idle q4_0/q4_0 x12");
}

TEST(CacheRest, WithoutMemoryAPageStaysAndMayBeTriedAgain) {
  const char* const plan = "q8_0,idle=t3,exact=0";
  const uint64_t pages = EstimatePlan(*ParsePlan(plan), PqShapeOfTests(), {}, 8 * kPage)->bytes;
  RetentionRun run = RunOf(plan, pages + (uint64_t{24} << 10));
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 8 * kPage);
  const SequenceId fork = *run.cache->Fork(a);
  const SequenceId other = *run.cache->CreateSequence();
  run.Feed(other, 3);
  // Nothing is freed while the fork has the old pages: room for some alone.
  EXPECT_EQ(run.cache->Rest(a, 0, 8 * kPage).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Forms(*run.cache, fork), "sealed q8_0/q8_0 x8");
  ASSERT_OK(run.cache->Free(fork));
  ASSERT_OK(run.cache->Free(other));
  EXPECT_OK(run.cache->Rest(a, 0, 8 * kPage).status());
  EXPECT_EQ(Forms(*run.cache, a), "idle t3/t3 x8");
}

TEST(CacheRest, SaysWhatItRefuses) {
  RetentionRun run = RunOf("q8_0,idle=t3");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 5);
  EXPECT_EQ(run.cache->Rest(a, 0, 6).status().message(), "Rest: [0, 6) is not inside [0, 5)");
  EXPECT_EQ(run.cache->Rest(a, 3, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(run.cache->Rest({99}, 0, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*run.cache->Rest(a, 0, 5), 0);  // a page that grows does not rest
  RetentionRun plain = RunOf("q8_0");
  const SequenceId b = *plain.cache->CreateSequence();
  EXPECT_EQ(plain.cache->Rest(b, 0, 0).status().message(),
            "Rest: plan \"q8_0\" has no idle=; add idle=RUNG to it");
}

}  // namespace cache_rest_test
}  // namespace varve
