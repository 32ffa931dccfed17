#include "serve/engine/step_scheduler.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve::serve {
namespace step_scheduler_test {

std::vector<int64_t> Cuts(int64_t begin, int64_t num_tokens, int64_t max_chunk) {
  std::vector<int64_t> ends;
  while (begin < num_tokens) {
    begin = ChunkEnd(begin, num_tokens, 64, max_chunk);
    ends.push_back(begin);
  }
  return ends;
}

TEST(StepScheduler, CutsPromptsAtPagesAndReadsAShortTailAlone) {
  EXPECT_EQ(Cuts(0, 5, 128), (std::vector<int64_t>{5}));
  EXPECT_EQ(Cuts(0, 64, 128), (std::vector<int64_t>{64}));
  EXPECT_EQ(Cuts(0, 68, 128), (std::vector<int64_t>{64, 68}));
  EXPECT_EQ(Cuts(0, 80, 128), (std::vector<int64_t>{80}));
  EXPECT_EQ(Cuts(0, 300, 128), (std::vector<int64_t>{128, 256, 300}));
  EXPECT_EQ(Cuts(0, 260, 512), (std::vector<int64_t>{256, 260}));
}

// Products of at most kFewTokens tokens round otherwise: which tokens are in such a piece must not
// depend on chunks or on what the cache had.
TEST(StepScheduler, TheSameTokensAreInAShortPieceWhereverReadingBegins) {
  for (int64_t num_tokens = 1; num_tokens < 400; ++num_tokens) {
    const int64_t last_page = (num_tokens - 1) / 64 * 64;
    const bool is_short = num_tokens - last_page <= kFewTokens;
    for (const int64_t chunk : {64, 128, 512}) {
      for (int64_t begin = 0; begin <= last_page; begin += 64) {
        int64_t at = begin;
        for (const int64_t end : Cuts(begin, num_tokens, chunk)) {
          ASSERT_LE(end - at, chunk + 63);
          ASSERT_EQ(end - at <= kFewTokens, is_short && end == num_tokens)
              << num_tokens << " tokens from " << begin << ", piece " << at << " to " << end;
          at = end;
        }
        ASSERT_EQ(at, num_tokens);
      }
    }
  }
}

TEST(StepScheduler, AShortPromptOvertakesALongOneThatStillGoesOn) {
  const std::vector<ReadingPrompt> reading = {{0, 1, 4096}, {1, 2, 0}};
  EXPECT_EQ(NextReader(reading, 0), 1u);
  EXPECT_EQ(NextReader(reading, 1), 0u);
  EXPECT_EQ(NextReader({}, 0), std::nullopt);
}

TEST(StepScheduler, ALongPromptEndsHoweverManyShortOnesCome) {
  int chunks_of_long = 0;
  for (uint64_t turn = 0; turn < 100; ++turn) {
    // A new short prompt in every step.
    const std::vector<ReadingPrompt> reading = {{0, 1, 1000}, {1, 2 + turn, 0}};
    if (NextReader(reading, turn) == 0u) ++chunks_of_long;
  }
  EXPECT_EQ(chunks_of_long, 50);
}

TEST(StepScheduler, TheTenantWithTheFewestSlotsIsNext) {
  const std::vector<WaitingRequest> waiting = {{1, 5, true}, {2, 5, true}, {9, 1, true}};
  EXPECT_EQ(NextWaiting(waiting), 2u);
  EXPECT_EQ(NextWaiting(std::vector<WaitingRequest>{{7, 1, true}, {3, 1, true}}), 1u);
  EXPECT_EQ(NextWaiting(std::vector<WaitingRequest>{{7, 1, false}, {8, 2, true}}), 1u);
  EXPECT_EQ(NextWaiting(std::vector<WaitingRequest>{{7, 1, false}}), std::nullopt);
}

TEST(StepScheduler, PromptsThatPushOthersOutTakeAShareOfTheTime) {
  CrowdedReads reads(/*pause=*/4);
  EXPECT_TRUE(reads.MayBegin(0));
  reads.Begin();
  EXPECT_FALSE(reads.MayBegin(1000));
  reads.End(1000, /*reading_s=*/2);
  EXPECT_FALSE(reads.MayBegin(1007));
  EXPECT_TRUE(reads.MayBegin(1008));
  reads.Begin();
  reads.End(2000, /*reading_s=*/50);
  EXPECT_FALSE(reads.MayBegin(2000 + CrowdedReads::kMostSeconds - 1));
  EXPECT_TRUE(reads.MayBegin(2000 + CrowdedReads::kMostSeconds));
}

}  // namespace step_scheduler_test
}  // namespace varve::serve
