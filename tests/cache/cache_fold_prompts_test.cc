// Several prompts in one sequence: each is folded where the last one ended; where tokens and
// positions part; how to go on without folding.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cache/fold_cache_testing.h"

namespace varve {
namespace cache_fold_prompts_test {

constexpr char kExact[] = "fold=shipped,open_rung=f32,f32";
constexpr char kRestart[] = "fold=shipped,fold_positions=restart,open_rung=f32,f32";

// A prompt of `prompt` tokens, then `generated` ones.
Status Turn(FoldRun& run, int64_t prompt, int64_t generated) {
  VARVE_RETURN_IF_ERROR(run.cache->BeginPrompt(run.id));
  VARVE_RETURN_IF_ERROR(run.Feed(prompt));
  VARVE_RETURN_IF_ERROR(run.cache->EndPrompt(run.id));
  return run.Feed(generated);
}

TEST(CacheFoldPrompts, EachIsFoldedAndWhatLiesBetweenIsNot) {
  FoldRun run(kExact, MakeCompressor({.factor = 4}));
  ASSERT_OK(Turn(run, 64, 10));
  ASSERT_OK(Turn(run, 41, 5));
  ASSERT_OK(Turn(run, 3, 2));  // too short to be folded
  ASSERT_OK(Turn(run, 8, 1));
  run.ExpectRows({{0, 16, 4}, {64, 10, 1}, {74, 10, 4}, {114, 11, 1}, {125, 2, 4}, {133, 1, 1}},
                 1e-5);
  EXPECT_EQ(*run.cache->NextPosition(run.id), 134);
  const FoldStats stats = run.cache->Report().fold;
  EXPECT_EQ(stats.prompts, 3u);
  EXPECT_EQ(stats.tokens, (64u + 41 + 8) * kFoldLayers);
  EXPECT_EQ(stats.rows, (16u + 11 + 2) * kFoldLayers);
  EXPECT_EQ(stats.rows_raw, 1u * kFoldLayers);
}

TEST(CacheFoldPrompts, TheFirstBeginsByItselfAndALaterOneMustBeSaid) {
  FoldRun run("fold=shipped", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(64));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.Feed(64));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 16 + 64);
  EXPECT_EQ(run.cache->Report().fold.prompts, 1u);
}

TEST(CacheFoldPrompts, BeginningOneThatIsOpenChangesNothing) {
  FoldRun run(kExact, MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(30));
  ASSERT_OK(Turn(run, 34, 0));
  run.ExpectRows({{0, 16, 4}}, 1e-5);
  ASSERT_OK(run.cache->BeginPrompt(run.id));
  ASSERT_OK(run.Feed(9));
  ASSERT_OK(Turn(run, 9, 0));
  run.ExpectRows({{0, 16, 4}, {64, 4, 4}, {80, 2, 1}}, 1e-5);
}

TEST(CacheFoldPrompts, WhatWasGeneratedIsSealedAndWaitsWhileAPromptIsRead) {
  FoldRun run("q8_0,fold=shipped", MakeCompressor({.factor = 4}));
  ASSERT_OK(Turn(run, 64, 40));
  const uint64_t sealed = run.cache->Stats().pages_sealed;
  EXPECT_EQ(sealed, 3u * kFoldLayers);  // 16 folded rows; 32 of the 40 tokens
  ASSERT_OK(run.cache->BeginPrompt(run.id));
  ASSERT_OK(run.Feed(100));
  EXPECT_EQ(run.cache->Stats().pages_sealed, sealed);
  ASSERT_OK(run.cache->EndPrompt(run.id));
  // The page of the last 8 generated tokens, and 25 rows in two pages.
  EXPECT_EQ(run.cache->Stats().pages_sealed, sealed + 3u * kFoldLayers);
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 16 + 40 + 25);
}

TEST(CacheFoldPrompts, AnImageLiesInTheFirstOnly) {
  for (const char* plan : {"fold=shipped,image=50,open_rung=f32,f32",
                           "fold=shipped,image=50,fold_positions=restart,open_rung=f32,f32"}) {
    FoldRun run(plan, MakeCompressor({.factor = 5}));
    ASSERT_OK(Turn(run, 30, 5));
    ASSERT_OK(Turn(run, 20, 0));
    run.ExpectRows({{0, 6, 5, true}, {30, 5, 1}, {35, 4, 5, false}}, 1e-5);
  }
}

TEST(CacheFoldPrompts, PositionsRestartWhereEachBegins) {
  FoldRun run(kRestart, MakeCompressor({.factor = 5}));
  ASSERT_OK(Turn(run, 48, 10));  // 9 rows and 3 tokens, then 10
  ASSERT_OK(Turn(run, 42, 0));
  EXPECT_EQ(*run.cache->NextPosition(run.id), 22 + 8 + 2);
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 100);
  run.ExpectRows({{0, 9, 5}, {45, 13, 1}, {58, 8, 5}, {98, 2, 1}}, 1e-5);
  ASSERT_OK(run.Feed(4));
  EXPECT_EQ(run.cache->Describe(run.id, 1)->pages.back().first_position, 30);
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 104);
  EXPECT_EQ(run.cache->Stats().bytes_f16_seen, 104u * kFoldLayers * kFoldHeads * 2 * kFoldDim * 2);
}

TEST(CacheFoldPrompts, ACutIsFoundByTokensWherePositionsRestart) {
  FoldRun run(kRestart, MakeCompressor({.factor = 5}));
  ASSERT_OK(Turn(run, 48, 10));
  ASSERT_OK(Turn(run, 40, 3));
  const auto expect = [&](int64_t tokens, int64_t left, int64_t position) {
    const Result<CutPoint> cut = run.cache->FindCut(run.id, tokens);
    ASSERT_OK(cut.status());
    EXPECT_EQ(cut->num_tokens, left) << tokens;
    EXPECT_EQ(cut->position, position) << tokens;
  };
  expect(101, 101, 33);
  expect(98, 98, 30);
  expect(97, 58, 22);  // a prompt that has restarted stays whole or goes
  expect(58, 58, 22);
  expect(50, 50, 14);
  expect(48, 48, 12);
  expect(47, 0, 0);
  expect(0, 0, 0);
  EXPECT_EQ(run.cache->FindCut(run.id, 102).status().message(),
            "FindCut: num_tokens 102 is outside 0 … 101");
  EXPECT_EQ(run.cache->FindCut(run.id, -1).status().code(), StatusCode::kInvalidArgument);
  // What is cut away has not been seen, and can be read again.
  ASSERT_OK(run.cache->Truncate(run.id, 22));
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 58);
  run.fed = 58;
  ASSERT_OK(Turn(run, 40, 0));
  expect(98, 98, 30);
  run.ExpectRows({{0, 9, 5}, {45, 13, 1}, {58, 8, 5}}, 1e-5);
}

TEST(CacheFoldPrompts, EveryCutThatIsFoundCanBeMade) {
  for (const char* plan : {kExact, kRestart, "0: fold=shipped; 1: f16; 2: fold=shipped,open=7"}) {
    SCOPED_TRACE(plan);
    FoldRun run(plan, MakeCompressor({.factor = 3}));
    ASSERT_OK(Turn(run, 50, 9));
    ASSERT_OK(Turn(run, 31, 4));
    int64_t last = 0;
    for (int64_t tokens = 0; tokens <= 94; ++tokens) {
      const CutPoint cut = *run.cache->FindCut(run.id, tokens);
      EXPECT_LE(cut.num_tokens, tokens);
      EXPECT_GE(cut.num_tokens, last);
      last = cut.num_tokens;
      const SequenceId fork = *run.cache->Fork(run.id);
      ASSERT_OK(run.cache->Truncate(fork, cut.position));
      EXPECT_EQ(*run.cache->TokensSeen(fork), cut.num_tokens);
      ASSERT_OK(run.cache->Free(fork));
    }
    EXPECT_EQ(last, 94);
  }
}

TEST(CacheFoldPrompts, ARefusedOneCanEndUnfolded) {
  const auto compressor = MakeCompressor({.factor = 2});
  FoldRun probe("q8_0,fold=shipped", compressor);
  ASSERT_OK(probe.Feed(320));
  CacheOptions options;
  // Room for a page beside the prompt's, and no more.
  const uint64_t prompt_bytes = probe.cache->Stats().bytes_held;
  options.max_bytes = prompt_bytes + prompt_bytes / (20 * kFoldLayers);
  FoldRun run("q8_0,fold=shipped", compressor, options);
  ASSERT_OK(run.Feed(320));
  EXPECT_EQ(run.cache->EndPrompt(run.id).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(run.cache->Stats().pages_sealed, 0u);
  ASSERT_OK(run.cache->EndPrompt(run.id, {.fold = false}));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 320);
  EXPECT_EQ(run.cache->Stats().pages_sealed, 20u * kFoldLayers);
  EXPECT_EQ(run.cache->Report().fold.prompts, 0u);
  EXPECT_EQ(run.cache->Report().fold.prompts_skipped, 1u);
  // It has ended: nothing of it is folded later, but the next one is.
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(Turn(run, 20, 0));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 320 + 10);
  EXPECT_EQ(run.cache->Report().fold.prompts, 1u);
}

TEST(CacheFoldPrompts, SomeCallsAreRefusedInAStep) {
  FoldRun run("fold=shipped", MakeCompressor());
  const StepEntry entry{run.id, 1};
  ASSERT_OK(run.cache->BeginStep({&entry, 1}));
  EXPECT_EQ(run.cache->BeginPrompt(run.id).message(),
            "BeginPrompt: a step is open; end or abort it first");
  run.cache->AbortStep();
  ASSERT_OK(run.cache->Free(run.id));
  EXPECT_EQ(run.cache->BeginPrompt(run.id).code(), StatusCode::kNotFound);
  EXPECT_EQ(run.cache->FindCut(run.id, 0).status().code(), StatusCode::kNotFound);
}

TEST(CacheFoldPrompts, AgreeWithTheReferenceThroughForksCutsAndHoles) {
  for (const char* plan : {"f16,fold", "q8_0,fold,image=37", "fold,age=f16:40/q8_0:90/q4_0,exact=0",
                           "q8_0,fold,open=20", "f16,fold,window=70,sink=10",
                           "q4_0r,fold,fold_positions=restart,exact=0",
                           "0: f16; 1: q8_0,fold; 2: q4_0,window=50,exact=0",
                           "f16,fold,fold_positions=restart,window=30"}) {
    SCOPED_TRACE(plan);
    CacheOptions options;
    options.compressor = MakeCompressor({.factor = 3, .min_groups = 2});
    CacheTwin twin(FoldShape(), plan, options);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 70));
    ASSERT_OK(twin.EndPrompt(id));
    ASSERT_OK(twin.Grow(id, 23));
    ASSERT_OK(twin.BeginPrompt(id));
    ASSERT_OK(twin.Grow(id, 50));
    const SequenceId fork = *twin.Fork(id);
    const int64_t end = twin.reference().next_position(id);
    ASSERT_OK(twin.RemoveRange(id, end - 41, end - 38));
    ASSERT_OK(twin.EndPrompt(id));
    ASSERT_OK(twin.Grow(id, 8));
    // Back before the prompt that is open, into what was generated.
    ASSERT_OK(twin.Truncate(fork, end - 55));
    ASSERT_OK(twin.Grow(fork, 30));
    ASSERT_OK(twin.EndPrompt(fork));
    ASSERT_OK(twin.BeginPrompt(fork));
    ASSERT_OK(twin.Grow(fork, 20));
    ASSERT_OK(twin.EndPrompt(fork, false));
    ASSERT_OK(twin.BeginPrompt(fork));
    ASSERT_OK(twin.Grow(fork, 12));
    ASSERT_OK(twin.EndPrompt(fork));
    // All of it again, from the start.
    ASSERT_OK(twin.Truncate(id, 0));
    ASSERT_OK(twin.BeginPrompt(id));
    ASSERT_OK(twin.Grow(id, 40));
    ASSERT_OK(twin.EndPrompt(id));
    ASSERT_OK(twin.Grow(id, 20));
  }
}

}  // namespace cache_fold_prompts_test
}  // namespace varve
