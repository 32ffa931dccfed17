// fold= together with the rest: programs against the reference model, holes, cuts, policies,
// packing, files at every moment.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "rungs/pq/pq_testing.h"
#include "tests/cache/fold_cache_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace cache_fold_together_test {

CacheTwin MakeTwin(const std::string& plan, const CompressorSpec& spec, CacheOptions options = {}) {
  options.compressor = MakeCompressor(spec);
  options.codebook =
      SharePqCodebook(FoldShape(), {{Part::kKey, {16, 4}, CodebookGrain::kHead, false},
                                    {Part::kValue, {16, 4}, CodebookGrain::kModel, false}});
  return CacheTwin(FoldShape(), plan, options);
}

TEST(CacheFoldTogether, AgreesWithTheReferenceThroughForksCutsAndWindows) {
  for (const char* plan : {"f16,fold", "q8_0,fold,image=37", "fold,age=f16:40/q8_0:90/q4_0,exact=0",
                           "pq2,fold,open=20,exact=0", "f16,fold,window=70,sink=10",
                           "q4_0r,fold,fold_positions=restart,exact=0",
                           "0: f16; 1: q8_0,fold; 2: q4_0,window=50,exact=0",
                           "f16,fold,fold_positions=restart,window=30"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin = MakeTwin(plan, {.factor = 3, .min_groups = 2});
    twin.PutNaNEvery(50);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 110));
    const SequenceId fork = *twin.Fork(id);
    ASSERT_OK(twin.RemoveRange(id, 50, 59));
    ASSERT_OK(twin.EndPrompt(id));
    ASSERT_OK(twin.Grow(fork, 9));
    ASSERT_OK(twin.Grow(id, 20, {.window = 25}));
    ASSERT_OK(twin.EndPrompt(fork));
    const SequenceId late = *twin.Fork(fork);
    ASSERT_OK(twin.Grow(late, 40, {.soft_cap = 3.0f}));
    ASSERT_OK(twin.Truncate(late, twin.reference().next_position(fork)));
    ASSERT_OK(twin.Grow(late, 7));
    for (int64_t cut = twin.reference().next_position(fork); cut > 0; --cut) {
      const bool inside = twin.reference().IsInsideRow(fork, cut);
      const Status status = twin.Truncate(fork, cut);
      ASSERT_EQ(status.code(), inside ? StatusCode::kInvalidArgument : StatusCode::kOk)
          << cut << ": " << status.ToString();
    }
    ASSERT_OK(twin.Grow(fork, 40));
    ASSERT_OK(twin.SlideWindow(late, 30, 0));
    ASSERT_OK(twin.EndPrompt(late));
    ASSERT_OK(twin.Attend(1, late, 12, {.causal = false}));
  }
}

TEST(CacheFoldTogether, ARowBehindAHoleIsSealedWhenTheNextPageBegins) {
  CacheTwin twin = MakeTwin("q8_0,fold", {.factor = 7, .min_groups = 1});
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 41));
  ASSERT_OK(twin.KeepOnly(id, 2, 24));
  ASSERT_OK(twin.EndPrompt(id));  // three rows of seven tokens and one as it was, then nothing
  EXPECT_EQ(twin.cache().Stats().pages_sealed, 1u * kFoldLayers);
  ASSERT_OK(twin.Grow(id, 7));
  EXPECT_EQ(twin.cache().Stats().pages_sealed, 2u * kFoldLayers);
}

TEST(CacheFoldTogether, EmptyAndShortPromptsEnd) {
  for (const char* plan : {"f16,fold", "q8_0,fold,fold_positions=restart,image=3"}) {
    CacheTwin twin = MakeTwin(plan, {.factor = 4, .min_groups = 2});
    const SequenceId empty = twin.Create();
    ASSERT_OK(twin.EndPrompt(empty));
    ASSERT_OK(twin.Grow(empty, 40));
    ASSERT_OK(twin.EndPrompt(empty));
    const SequenceId one = twin.Create();
    ASSERT_OK(twin.Grow(one, 1));
    ASSERT_OK(twin.EndPrompt(one));
    ASSERT_OK(twin.Grow(one, 40));
    const SequenceId cut = twin.Create();
    ASSERT_OK(twin.Grow(cut, 40));
    ASSERT_OK(twin.Truncate(cut, 0));
    ASSERT_OK(twin.Grow(cut, 33));
    ASSERT_OK(twin.EndPrompt(cut));
    ASSERT_OK(twin.Truncate(cut, 0));
    ASSERT_OK(twin.Grow(cut, 33));
    const SequenceId gone = twin.Create();
    ASSERT_OK(twin.Grow(gone, 40));
    ASSERT_OK(twin.RemoveRange(gone, 0, 40));
    ASSERT_OK(twin.EndPrompt(gone));
    ASSERT_OK(twin.Grow(gone, 5));
  }
}

TEST(CacheFoldTogether, WhatIsCutAwayWholeHasNotBeenSeen) {
  FoldRun run("fold=shipped,fold_positions=restart", MakeCompressor({.factor = 5}));
  ASSERT_OK(run.Feed(48));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.cache->Truncate(run.id, 0));
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 0);
  EXPECT_EQ(run.cache->Stats().bytes_f16_seen, 0u);
}

TEST(CacheFoldTogether, APolicyAtThePromptsEndCountsSealedPages) {
  // 640 tokens by 4 are 10 pages. Sealed in q8_0 they take less than 640 / 5 tokens in f16, but not
  // before.
  FoldRun run("q8_0,fold=shipped,evict=snapkv,ratio=5,sink=16,recent=32,trigger=64",
              MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(640));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.Feed(1));
  EXPECT_EQ(run.cache->Report().retention.plans, 1u * kFoldLayers);
  EXPECT_EQ(run.cache->Report().retention.pages_evicted, 0u);
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 161);
}

// Memory that is full of what somebody has left there, or clean.
class DirtyMemory final : public PageMemory {
 public:
  explicit DirtyMemory(bool dirty) : dirty_(dirty) {}
  std::byte* Map(size_t bytes) override {
    std::byte* address = memory_.Map(bytes);
    if (address != nullptr) Fill(address, bytes);
    return address;
  }
  void Discard(std::byte* address, size_t bytes) override { Fill(address, bytes); }
  void Unmap(std::byte* address, size_t bytes) override { memory_.Unmap(address, bytes); }

 private:
  void Fill(std::byte* address, size_t bytes) {
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
      const uint64_t word = dirty_ ? random_.Next() : 0;
      std::memcpy(address + at, &word, 8);
    }
  }
  CountingMemory memory_;
  bool dirty_;
  SplitMix64 random_{1};
};

TEST(CacheFoldTogether, WhatLayInMemoryBeforeIsNotPacked) {
  uint64_t first = 0;
  for (const bool dirty : {false, true}) {
    DirtyMemory memory(dirty);
    FoldRun run("f16,fold=shipped,pack=store,hot=0/0,bootstrap=1,step=1",
                MakeCompressor({.factor = 4}), WithMemory(&memory));
    ASSERT_OK(run.Feed(4 * 35));  // two full pages and one of three rows
    ASSERT_OK(run.cache->EndPrompt(run.id));
    ASSERT_OK(run.Feed(32));
    run.cache->WaitForPacking();
    const LosslessStats stats = run.cache->Report().lossless;
    EXPECT_EQ(stats.pages_packed, 5u * kFoldLayers);
    if (first == 0) first = stats.compressed_bytes;
    EXPECT_EQ(stats.compressed_bytes, first);
  }
}

// Two caches that must go on alike.
void ExpectAlike(FoldRun& a, FoldRun& b) {
  EXPECT_EQ(*a.cache->NextPosition(a.id), *b.cache->NextPosition(b.id));
  EXPECT_EQ(*a.cache->TokensSeen(a.id), *b.cache->TokensSeen(b.id));
  EXPECT_EQ(*a.cache->MaxStepTokens(a.id), *b.cache->MaxStepTokens(b.id));
  EXPECT_EQ(ReadAll(*a.cache, a.id), ReadAll(*b.cache, b.id));
  EXPECT_EQ(a.cache->Stats().bytes_f16_seen, b.cache->Stats().bytes_f16_seen);
  EXPECT_EQ(a.cache->Stats().bytes_f16, b.cache->Stats().bytes_f16);
}

TEST(CacheFoldTogether, AFileAtAnyMomentGoesOnAsItsCacheDoes) {
  const TempFolder folder;
  const std::string path = folder.File("moment.varve");
  const auto compressor = MakeCompressor({.factor = 4});
  const std::string policy = ",ratio=12,sink=16,recent=32,trigger=64,every=16";
  for (const std::string& plan :
       {std::string("q8_0,fold=shipped,evict=h2o") + policy,
        std::string("f16,fold=shipped,evict=tova") + policy,
        std::string("q8_0,fold=shipped,evict=snapkv") + policy,
        std::string("q8_0,fold=shipped,evict=demote,exact=0") + policy,
        std::string("q8_0,fold=shipped,evict=random,image=90") + policy,
        std::string("q8_0,fold=shipped,fold_positions=restart,evict=h2o,pack=store,hot=0/0,"
                    "bootstrap=1,step=1") +
            policy,
        std::string("0: q8_0,fold=shipped; 1-: f16,evict=h2o") + policy}) {
    SCOPED_TRACE(plan);
    // Saved in the prompt, at its end, later; when another one begins, and in it.
    for (const int moment : {0, 1, 3, 4, 5}) {
      FoldRun run(plan, compressor);
      const auto step = [](FoldRun& on, int at) {
        if (at == 1 || at == 6) return on.cache->EndPrompt(on.id);
        if (at == 4) return on.cache->BeginPrompt(on.id);
        return on.Feed(at == 0 ? 120 : at == 2 ? 16 : 50);
      };
      ASSERT_OK(run.Feed(83));
      for (int at = 0; at <= moment; ++at) ASSERT_OK(step(run, at));
      run.cache->WaitForPacking();
      ASSERT_OK(run.cache->Save(path, {}));
      FoldRun other(plan, compressor);
      ASSERT_OK(other.cache->Free(other.id));
      Result<std::vector<SequenceTokens>> loaded = other.cache->Load(path, {});
      ASSERT_OK(loaded.status());
      other.id = loaded->front().sequence;
      other.fed = run.fed;
      ExpectAlike(run, other);
      for (int at = moment + 1; at < 8; ++at) {
        ASSERT_OK(step(run, at));
        ASSERT_OK(step(other, at));
        ExpectAlike(run, other);
      }
    }
  }
}

TEST(CacheFoldTogether, UnderACapForksFoldOneAfterTheOtherAndARefusedOneGoesOn) {
  const auto compressor = MakeCompressor({.factor = 2});
  FoldRun probe("q8_0,fold=shipped", compressor);
  ASSERT_OK(probe.Feed(320));
  const uint64_t prompt_bytes = probe.cache->Stats().bytes_held;
  CacheOptions options;
  // For the prompt, two folded copies of it, and a few pages.
  options.max_bytes = prompt_bytes + prompt_bytes / 5 * 4;
  FoldRun run("q8_0,fold=shipped", compressor, options);
  ASSERT_OK(run.Feed(320));
  std::vector<SequenceId> all = {run.id};
  for (int i = 0; i < 4; ++i) all.push_back(*run.cache->Fork(run.id));
  std::vector<SequenceId> refused;
  std::vector<float> folded;
  for (const SequenceId id : all) {
    const std::vector<float> before = ReadAll(*run.cache, id);
    const Status status = run.cache->EndPrompt(id);
    EXPECT_LE(run.cache->Stats().bytes_held, options.max_bytes);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
      EXPECT_EQ(ReadAll(*run.cache, id), before);
      refused.push_back(id);
    }
  }
  ASSERT_GT(refused.size(), 0u);
  ASSERT_LT(refused.size(), all.size());
  folded = ReadAll(*run.cache, run.id);
  // Without the others there is room: it folds as they did.
  for (const SequenceId id : all) {
    if (id == refused.back() || id == run.id) continue;
    ASSERT_OK(run.cache->Free(id));
  }
  ASSERT_OK(run.cache->EndPrompt(refused.back()));
  EXPECT_EQ(ReadAll(*run.cache, refused.back()), folded);
  ASSERT_OK(run.Feed(40));
  ASSERT_OK(run.cache->Free(run.id));
  ASSERT_OK(run.cache->Free(refused.back()));
  EXPECT_EQ(run.cache->Stats().pages, 0u);
  EXPECT_EQ(run.cache->Stats().bytes_used, 0u);
}

}  // namespace cache_fold_together_test
}  // namespace varve
