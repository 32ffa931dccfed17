// Files of caches with pq rungs: they go on bit for bit with the codebook they had, and with no
// other.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/cache/pq_cache_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_pq_file_test {

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// A file with two sequences that share pages, one of them cut.
void SaveRun(RetentionRun& run, const std::string& path) {
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 120);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(b, 160);
  ASSERT_OK(run.cache->RemoveRange(a, 30, 40));
  ASSERT_OK(run.cache->Save(path, {}));
}

TEST(CachePqFile, GoesOnBitForBit) {
  for (const char* plan :
       {"pq4,exact=0", "pq4,open=0,exact=0", "k=pq16x5,v=q8_0,open=0,exact=0",
        "k=f16,v=pq8x10,open=16,exact=0", "age=f16:32/pq4:96/pq2,exact=0",
        "0: pq2,open=0,exact=0; 1: q8_0",
        "pq4,open=16,evict=h2o,ratio=6,sink=16,recent=32,trigger=64,every=16,exact=0",
        "k=pq16x8,v=pq16x6,open=0,pack=store,hot=16/32,bootstrap=16,step=32,exact=0"}) {
    SCOPED_TRACE(plan);
    const TempFolder folder;
    const std::string path = folder.File("cache.varve");
    RetentionRun run(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
    ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
    RetentionRun loaded(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
    Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
    ASSERT_OK(sequences.status());
    ASSERT_EQ(sequences->size(), 2u);
    run.outputs.clear();
    for (const uint64_t i : {uint64_t{1}, uint64_t{2}}) {
      const SequenceId id = (*sequences)[i - 1].sequence;
      run.Feed({i}, 230, 7);
      loaded.Feed(id, 230, 7);
      EXPECT_TRUE(ReadAll(*run.cache, {i}) == ReadAll(*loaded.cache, id));
      for (int layer = 0; layer < 2; ++layer) {
        const std::vector<float>& outputs = run.outputs[{i, layer}];
        EXPECT_FALSE(outputs.empty());
        EXPECT_TRUE(outputs == (loaded.outputs[{id.value, layer}]));
      }
    }
    EXPECT_OK(VerifyCacheFile(path));
  }
}

TEST(CachePqFile, IsReadWithTheSameCodebookFromAFileOfAnyName) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  // The names in a codebook are for people: they do not make it another.
  Codebook renamed = *WithPqCodebook().codebook;
  renamed.model_name = "someone else";
  ASSERT_OK(SaveCodebook(renamed, folder.File("words.codes")));
  RetentionRun loaded(PqShapeOfTests(), "pq4,open=0,exact=0,codebook=" + folder.File("words.codes"),
                      PqWork());
  EXPECT_OK(loaded.cache->Load(path, {}).status());
  // And back: where a codebook lies is not part of a cache file.
  const std::string again = folder.File("again.varve");
  ASSERT_OK(loaded.cache->Save(again, {}));
  EXPECT_TRUE(ReadFileBytes(path) == ReadFileBytes(again));
}

TEST(CachePqFile, IsRefusedWithAnotherCodebook) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(PqShapeOfTests(), "k=q8_0,v=pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  const CacheOptions other = WithPqCodebook(PqShapeOfTests(), 2);
  const auto cache = MakeCache(PqShapeOfTests(), "k=q8_0,v=pq4,open=0,exact=0", other);
  const Status status = cache->Load(path, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            path + ": rung pq16x8: codebook_hash " + Hex(CodebookHash(*WithPqCodebook().codebook)) +
                " is not " + Hex(CodebookHash(*other.codebook)) + ", that of the codebook in use");
  EXPECT_EQ(cache->Stats().sequences, 0u);
  EXPECT_EQ(cache->Stats().pages, 0u);
}

TEST(CachePqFile, IsRefusedByACacheWithoutOne) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  CacheOptions options;
  options.plan = *ParsePlan("pq4,open=0,exact=0");
  EXPECT_EQ(Cache::Create(PqShapeOfTests(), options).status().code(),
            StatusCode::kFailedPrecondition);
  // A cache that runs on a fallback has another plan.
  const auto cache = MakeCache(PqShapeOfTests(), "pq4,open=0,fallback=q4_0,exact=0");
  const Status status = cache->Load(path, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("plan \"pq4,open=0,exact=0\" is not \"q4_0,open=0,exact=0\""),
            std::string::npos)
      << status.message();
}

TEST(CachePqFile, IsInspectedAndVerifiedWithoutACodebook) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  Result<CacheFileInfo> info = ReadCacheFileInfo(path);
  ASSERT_OK(info.status());
  EXPECT_EQ(info->plan_text, "pq4,open=0,exact=0");
  EXPECT_EQ(info->sequences.size(), 2u);
  uint64_t pages = 0, bytes = 0;
  for (const RungBytes& rung : info->rungs) {
    if (rung.rung == "pq32x8/pq16x8") pages += rung.pages, bytes += rung.bytes;
  }
  EXPECT_EQ(pages, PagesIn(*run.cache, "pq32x8/pq16x8"));
  EXPECT_EQ(bytes, pages * 2 * (16 * 34 + 32 + 16 * 18 + 32));
  EXPECT_OK(VerifyCacheFile(path));
}

TEST(CachePqFile, ADamagedGainIsFoundBehindTheChecksums) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(), WithPqCodebook());
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  std::vector<std::byte> bytes = ReadFileBytes(path);
  const auto record =
      GetRecord<PageRecord>(bytes.data() + FindSection(bytes, SectionKind::kPages).offset);
  const uint16_t infinite = 0x7C00;
  std::memcpy(bytes.data() + record.offset + 6, &infinite, 2);  // the fourth token of K, head 0
  RepairChecksums(&bytes);
  WriteFileBytes(path, bytes);
  const Status status = VerifyCacheFile(path);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("rung pq32x8: gain 3 is inf, not finite"), std::string::npos)
      << status.message();
  const auto cache = MakeCache(PqShapeOfTests(), "pq4,open=0,exact=0", WithPqCodebook());
  Result<std::vector<SequenceTokens>> sequences = cache->Load(path, {});
  ASSERT_OK(sequences.status());
  std::vector<float> rows(400 * 64);
  EXPECT_EQ(cache->ReadRows((*sequences)[0].sequence, 0, 0, Part::kKey, 0, 120, rows.data())
                .status()
                .code(),
            StatusCode::kDataLoss);
}

TEST(CachePqFile, ACacheThatRunsOnFallbacksIsSavedAndLoaded) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  // V has no table of that size.
  const char* plan = "k=pq16x5,v=pq16x5,open=0,fallback=q4_0r,exact=0";
  RetentionRun run(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
  ASSERT_EQ(run.cache->Report().fallbacks.size(), 1u);
  ASSERT_NO_FATAL_FAILURE(SaveRun(run, path));
  EXPECT_EQ(ReadCacheFileInfo(path)->plan_text, "k=pq16x5,v=q4_0r,open=0,exact=0");
  // By the same plan, and by the one that says what runs.
  for (const char* words : {plan, "k=pq16x5,v=q4_0r,open=0,exact=0"}) {
    RetentionRun loaded(PqShapeOfTests(), words, PqWork(), WithPqCodebook());
    Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
    ASSERT_OK(sequences.status());
    EXPECT_TRUE(ReadAll(*loaded.cache, (*sequences)[0].sequence) == ReadAll(*run.cache, {1}));
    loaded.Feed((*sequences)[1].sequence, 200);
  }
  // A ladder whose steps have all fallen back to one rung; a codebook file that is not there.
  for (const std::string& words :
       {std::string("age=f16:16/pq4:64/pq2,fallback=q4_0,exact=0"),
        std::string("age=pq4:64/pq2,fallback=q4_0,exact=0"),
        "pq4,fallback=q8_0,exact=0,codebook=" + folder.File("none.codes")}) {
    SCOPED_TRACE(words);
    RetentionRun whole(PqShapeOfTests(), words, PqWork());
    ASSERT_NO_FATAL_FAILURE(SaveRun(whole, path));
    RetentionRun loaded(PqShapeOfTests(), words, PqWork());
    Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
    ASSERT_OK(sequences.status());
    EXPECT_TRUE(ReadAll(*loaded.cache, (*sequences)[1].sequence) == ReadAll(*whole.cache, {2}));
  }
}

}  // namespace cache_pq_file_test
}  // namespace varve
