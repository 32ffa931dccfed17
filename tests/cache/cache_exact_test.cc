// exact=N: the pages that touch the first N tokens keep the open rung, whatever else the plan says
// of precision; windows and policies may still drop them.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/cache/pq_cache_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"
#include "varve/plan_estimate.h"

namespace varve {
namespace cache_exact_test {

constexpr int64_t kTokens = 400;

CacheShape Shape() {
  return ShapeOf({.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 32});
}

const RetentionWork& Work() {
  static const RetentionWork work(Shape(), kTokens);
  return work;
}

// "f16 full 4, q4_0 sealed 6": pages by rung and state.
std::string Rungs(const Cache& cache) {
  const char* const states[] = {"filling", "full", "sealed", "packed"};
  std::string text;
  for (const RungBytes& rung : cache.Report().rungs) {
    if (!text.empty()) text += ", ";
    text +=
        rung.rung + " " + states[static_cast<int>(rung.state)] + " " + std::to_string(rung.pages);
  }
  return text;
}

std::string RungsAt(std::string_view plan, int64_t tokens) {
  CacheTwin twin(ShapeOf({}), plan);
  EXPECT_OK(twin.Grow(twin.Create(), tokens));
  return Rungs(twin.cache());
}

TEST(CacheExact, PagesThatTouchTheFirstTokensKeepTheOpenRung) {
  EXPECT_EQ(RungsAt("q4_0,exact=0", 160), "q4_0 sealed 10");
  EXPECT_EQ(RungsAt("q4_0,exact=1", 160), "f16 full 1, q4_0 sealed 9");
  EXPECT_EQ(RungsAt("q4_0,exact=16", 160), "f16 full 1, q4_0 sealed 9");
  EXPECT_EQ(RungsAt("q4_0,exact=17", 160), "f16 full 2, q4_0 sealed 8");
  EXPECT_EQ(RungsAt("q4_0,exact=16,open_rung=f32", 160), "f32 full 1, q4_0 sealed 9");
  EXPECT_EQ(RungsAt("q4_0,exact=1000", 160), "f16 full 10");
}

TEST(CacheExact, RungsBelowEightBitsHaveSixtyFourByDefault) {
  EXPECT_EQ(RungsAt("q4_0", 160), "f16 full 4, q4_0 sealed 6");
  EXPECT_EQ(RungsAt("k=q8_0,v=q4_0r", 160), "f16 full 4, q8_0/q4_0r sealed 6");
  EXPECT_EQ(RungsAt("q8_0", 160), "q8_0 sealed 10");
  EXPECT_EQ(RungsAt("age=q8_0:64/q4_0", 160), "f16 full 4, q4_0 sealed 2, q8_0 sealed 4");
  EXPECT_EQ(RungsAt("q8_0,exact=64", 160), "f16 full 4, q8_0 sealed 6");
}

TEST(CacheExact, TheWindowDropsExactPagesToo) {
  EXPECT_EQ(RungsAt("q4_0,window=64", 160), "q4_0 sealed 4");
  EXPECT_EQ(RungsAt("q4_0,window=64,sink=16", 160), "f16 full 1, q4_0 sealed 4");
}

// Forks, cuts inside and outside of exact pages, and steps of many pages, against the reference.
TEST(CacheExact, FollowsTheReferenceThroughForksAndCuts) {
  for (const char* plan : {"q4_0", "q4_0r,exact=20", "age=f16:30/q8_0:50/q4_0,exact=33",
                           "q8_0,exact=16,window=90,sink=8", "0: q4_0,exact=0; 1: q4_0,open=20"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(Shape(), plan);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 150));
    const SequenceId fork = *twin.Fork(id);
    ASSERT_OK(twin.Truncate(fork, 40));  // inside an exact page, or behind them
    ASSERT_OK(twin.Grow(fork, 100));
    ASSERT_OK(twin.Truncate(id, 9));
    ASSERT_OK(twin.Grow(id, 60));
    ASSERT_OK(twin.RemoveRange(id, 3, 20));
    ASSERT_OK(twin.Grow(id, 60));
    ASSERT_OK(twin.Compare());
  }
}

TEST(CacheExact, StepsOfAnyLengthGiveTheSameBits) {
  for (const char* plan :
       {"q4_0", "k=q8_0,v=q4_0r,exact=20", "age=f16:30/q4_0,exact=100", "q4_0,window=100",
        "evict=demote,ratio=4,sink=16,recent=32,trigger=96,every=16,exact=32"}) {
    SCOPED_TRACE(plan);
    RetentionRun slow(Shape(), plan, Work());
    const SequenceId one = *slow.cache->CreateSequence();
    slow.Feed(one, 300, 1);
    for (const int step : {7, 64, 200}) {
      RetentionRun fast(Shape(), plan, Work());
      const SequenceId many = *fast.cache->CreateSequence();
      fast.Feed(many, 300, step);
      EXPECT_TRUE(ReadAll(*slow.cache, one) == ReadAll(*fast.cache, many)) << step;
      for (int layer = 0; layer < 2; ++layer) {
        EXPECT_TRUE((slow.outputs[{one.value, layer}] == fast.outputs[{many.value, layer}]));
      }
      EXPECT_EQ(Rungs(*slow.cache), Rungs(*fast.cache));
    }
  }
}

TEST(CacheExact, TheEstimateIsExactToTheByte) {
  for (const char* plan : {"q4_0", "q4_0,exact=0", "q4_0r,exact=17", "pq4", "pq4,open=0,exact=100",
                           "q4_0,exact=999", "q4_0,window=64", "q4_0,window=64,sink=20",
                           "age=f16:30/q8_0:100/q4_0,open_rung=f32", "0: f16; 1: k=q8_0,v=q4_0"}) {
    for (const int64_t tokens : {10, 16, 100, 239}) {
      RetentionRun run(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
      run.Feed(*run.cache->CreateSequence(), tokens);
      const CacheOptions given = WithPqCodebook();
      const Result<PlanCost> cost =
          EstimatePlan(*ParsePlan(plan), PqShapeOfTests(),
                       {given.codebook, given.compressor, given.model_fingerprint}, tokens);
      ASSERT_OK(cost.status());
      EXPECT_EQ(cost->payload, run.cache->Report().bytes_used) << plan << " at " << tokens;
    }
  }
}

// --- policies ---

TEST(CacheExact, DemotionLeavesExactPagesAlone) {
  RetentionRun run(
      Shape(), "evict=demote,budget=60KiB,sink=0,recent=16,trigger=96,every=16,exact=48", Work());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, kTokens);
  bool demoted = false;
  for (const RetentionEvent& event : run.log.events) {
    for (const PageDecision& page : event.pages) {
      if (page.page.first_position < 48 && page.fate != PageFate::kDropped) {
        EXPECT_EQ(page.rung, "f16") << EventText(event);
      }
      demoted = demoted || page.fate == PageFate::kDemoted;
    }
  }
  EXPECT_TRUE(demoted);
}

TEST(CacheExact, APolicyThatDropsMayDropExactPages) {
  RetentionRun run(Shape(), "q4_0,evict=window,ratio=8,sink=0,recent=16,trigger=96,every=16",
                   Work());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, kTokens);
  EXPECT_GT(run.PagesOf(id, 0).front(), 0);
}

// --- files ---

TEST(CacheExact, AFileSaysWhatIsExact) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(Shape(), "q4_0", Work());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 150);
  ASSERT_OK(run.cache->Save(path, {}));
  EXPECT_EQ(ReadCacheFileInfo(path)->plan_text, "q4_0,exact=64");
  RetentionRun loaded(Shape(), "q4_0", Work());
  Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
  ASSERT_OK(sequences.status());
  run.Feed(id, 260);
  loaded.Feed((*sequences)[0].sequence, 260);
  EXPECT_TRUE(ReadAll(*run.cache, id) == ReadAll(*loaded.cache, (*sequences)[0].sequence));
  EXPECT_EQ(Rungs(*run.cache), Rungs(*loaded.cache));

  const std::unique_ptr<Cache> other = MakeCache(Shape(), "q4_0,exact=0");
  EXPECT_EQ(other->Load(path, {}).status().message(),
            path +
                ": plan \"q4_0,exact=64\" is not \"q4_0,exact=0\", the cache's: they differ in "
                "layer 0");
}

TEST(CacheExact, AFileThatDoesNotSayItKeepsNothingExactAndLoads) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(Shape(), "q4_0,exact=0", Work());
  run.Feed(*run.cache->CreateSequence(), 150);
  ASSERT_OK(run.cache->Save(path, {}));
  std::vector<std::byte> bytes = ReadFileBytes(path);
  const SectionPlace place = FindSection(bytes, SectionKind::kPlan);
  const std::string text = "q4_0        ";  // blanks in place of ",exact=0"
  ASSERT_EQ(place.bytes, text.size());
  std::memcpy(bytes.data() + place.offset, text.data(), text.size());
  RepairChecksums(&bytes);
  WriteFileBytes(path, bytes);

  RetentionRun loaded(Shape(), "q4_0", Work());
  Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
  ASSERT_OK(sequences.status());
  EXPECT_EQ(loaded.cache->Report().bytes_used, 0u);  // nothing has been asked for yet
  loaded.Feed((*sequences)[0].sequence, 176);
  EXPECT_EQ(Rungs(*loaded.cache), "q4_0 sealed 22");
}

}  // namespace cache_exact_test
}  // namespace varve
