// Cutting sequences: truncate, remove, keep, slide. CacheTwin compares rows, positions and pages
// with the reference after every call; the tests choose where it hurts.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_sequence_test {

constexpr const char* kPlans[] = {
    "f16",
    "f32,open_rung=f32,open=20",
    "q4_0",
    "k=f16,v=q8_0",
    "age=f16:20/q8_0:45/q4_0,exact=0",
    "0: f16; 1: q8_0,open=9",
    "age=q8_0:24/f16",
};

class CacheSequences : public testing::TestWithParam<const char*> {
 protected:
  CacheTwin twin_{ShapeOf({.layers = 2, .key_dim = 32, .value_dim = 64}), GetParam()};
  SequenceId id_ = twin_.Create();
};

INSTANTIATE_TEST_SUITE_P(Plans, CacheSequences, testing::ValuesIn(kPlans));

TEST_P(CacheSequences, TruncateAnywhereAndGrowAgain) {
  for (const int64_t cut : {79, 70, 65, 64, 63, 48, 47, 33, 17, 16, 15, 1, 0}) {
    SCOPED_TRACE(cut);
    const SequenceId id = twin_.Create();
    ASSERT_OK(twin_.Grow(id, 80));
    ASSERT_OK(twin_.Truncate(id, cut));
    ASSERT_OK(twin_.Attend(1, id, 1));
    ASSERT_OK(twin_.Grow(id, 1));
    ASSERT_OK(twin_.Grow(id, 40));
    ASSERT_OK(twin_.Free(id));
  }
}

TEST_P(CacheSequences, TruncateAgainAndAgain) {
  ASSERT_OK(twin_.Grow(id_, 100));
  for (const int64_t cut : {90, 83, 60, 59, 40, 31, 9}) {
    ASSERT_OK(twin_.Truncate(id_, cut));
    ASSERT_OK(twin_.Truncate(id_, cut));  // nothing left to cut
    ASSERT_OK(twin_.Grow(id_, 5));
    ASSERT_OK(twin_.Truncate(id_, cut + 2));
  }
  ASSERT_OK(twin_.Grow(id_, 100));
}

TEST_P(CacheSequences, TruncateToZeroFreesEveryPage) {
  ASSERT_OK(twin_.Grow(id_, 100));
  ASSERT_OK(twin_.Truncate(id_, 0));
  EXPECT_EQ(twin_.cache().Stats().bytes_used, 0u);
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->next_position, 0);
  ASSERT_OK(twin_.Grow(id_, 40));
}

TEST_P(CacheSequences, RemoveRangesKeepTheOtherPositions) {
  ASSERT_OK(twin_.Grow(id_, 90));
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {5, 5}, {5, 6}, {0, 3}, {15, 17}, {32, 48}, {50, 81}, {89, 90}, {0, 90}}) {
    SCOPED_TRACE(std::to_string(begin) + " " + std::to_string(end));
    ASSERT_OK(twin_.RemoveRange(id_, begin, end));
    ASSERT_OK(twin_.Attend(0, id_, 30));
    ASSERT_OK(twin_.Grow(id_, 3));
  }
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->next_position, 90 + 8 * 3);
}

TEST_P(CacheSequences, RemovingTheEndLeavesAGapThatIsNeverFilled) {
  ASSERT_OK(twin_.Grow(id_, 40));
  ASSERT_OK(twin_.RemoveRange(id_, 30, 40));
  ASSERT_OK(twin_.Grow(id_, 20));
  ASSERT_OK(twin_.RemoveRange(id_, 32, 60));  // whole pages at the end
  ASSERT_OK(twin_.Grow(id_, 30));             // a page that starts off the grid
  ASSERT_OK(twin_.Truncate(id_, 61));
  ASSERT_OK(twin_.Truncate(id_, 60));
  ASSERT_OK(twin_.Truncate(id_, 35));
  ASSERT_OK(twin_.Grow(id_, 50));
}

TEST_P(CacheSequences, KeepOnlyARange) {
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 90}, {0, 20}, {10, 50}, {33, 34}, {80, 90}, {40, 40}}) {
    SCOPED_TRACE(std::to_string(begin) + " " + std::to_string(end));
    const SequenceId id = twin_.Create();
    ASSERT_OK(twin_.Grow(id, 90));
    ASSERT_OK(twin_.KeepOnly(id, begin, end));
    EXPECT_EQ(twin_.cache().Describe(id, 0)->live_rows, end - begin);
    ASSERT_OK(twin_.Grow(id, 25));
  }
}

TEST_P(CacheSequences, SlideWindowDropsWholePagesButNoSink) {
  ASSERT_OK(twin_.Grow(id_, 100));
  ASSERT_OK(twin_.SlideWindow(id_, 1000, 0));
  EXPECT_EQ(twin_.cache().Stats().pages_dropped, 0u);
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->live_rows, 100);
  ASSERT_OK(twin_.SlideWindow(id_, 50, 1));  // page 0 touches the sink; pages 16 and 32 go
  EXPECT_EQ(twin_.cache().Stats().pages_dropped, 4u);  // two in each of two layers
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->live_rows, 68);
  EXPECT_EQ(twin_.cache().Describe(id_, 1)->pages[1].first_position, 48);
  ASSERT_OK(twin_.SlideWindow(id_, 36, 0));  // page 48 ends at 64 = 100 - 36
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->live_rows, 36);
  ASSERT_OK(twin_.SlideWindow(id_, 1, 0));
  EXPECT_EQ(twin_.cache().Describe(id_, 0)->live_rows, 4);  // the page that is being filled
  ASSERT_OK(twin_.Grow(id_, 60));
}

TEST_P(CacheSequences, ForksAreCutApart) {
  ASSERT_OK(twin_.Grow(id_, 70));
  const SequenceId a = *twin_.Fork(id_), b = *twin_.Fork(id_), c = *twin_.Fork(a);
  ASSERT_OK(twin_.Truncate(a, 40));
  ASSERT_OK(twin_.RemoveRange(b, 10, 60));
  ASSERT_OK(twin_.KeepOnly(c, 64, 70));
  for (int round = 0; round < 30; ++round) {
    const std::vector<StepEntry> entries = {{a, 1}, {id_, 1}, {c, 1}, {b, 1}};
    ASSERT_OK(twin_.Step(entries));
  }
  ASSERT_OK(twin_.Free(id_));
  ASSERT_OK(twin_.Truncate(c, 66));
  ASSERT_OK(twin_.Grow(a, 20));
  ASSERT_OK(twin_.Grow(c, 20));
}

// Two sequences share one page of which each owns another prefix; both write behind their own.
TEST_P(CacheSequences, ForksCutInsideTheSamePageDoNotOverwriteEachOther) {
  ASSERT_OK(twin_.Grow(id_, 32));
  const SequenceId a = *twin_.Fork(id_), b = *twin_.Fork(id_);
  ASSERT_OK(twin_.Free(id_));
  ASSERT_OK(twin_.Truncate(a, 30));
  ASSERT_OK(twin_.Truncate(b, 22));
  const std::vector<StepEntry> entries = {{a, 1}, {b, 1}};
  ASSERT_OK(twin_.AbortedStep(entries, 2));
  ASSERT_OK(twin_.Step(entries));
  ASSERT_OK(twin_.Grow(b, 30));
  ASSERT_OK(twin_.Grow(a, 30));
}

// A ladder that comes back to the open rung makes pages that can grow again after a cut; what then
// is in them is no longer what a fork may adopt.
TEST(CacheSequenceForks, APageThatGrowsAgainIsNotAdopted) {
  CacheTwin twin(ShapeOf({}), "age=q8_0:30/f16");
  const SequenceId a = twin.Create();
  ASSERT_OK(twin.Grow(a, 20));
  const SequenceId b = *twin.Fork(a);
  ASSERT_OK(twin.Grow(a, 26));  // page 0 goes from q8_0 to f16 for a alone
  ASSERT_OK(twin.Truncate(a, 9));
  ASSERT_OK(twin.Grow(a, 3));
  ASSERT_OK(twin.Grow(b, 40));
}

TEST(CacheSequenceErrors, NameFieldValueAndLimit) {
  auto cache = MakeCache(ShapeOf({.layers = 2}), "f16");
  const SequenceId id = *cache->CreateSequence();
  const auto message = [](const Status& status) { return status.message(); };
  EXPECT_EQ(message(cache->Truncate(id, 1)), "Truncate: position 1 is outside 0 … 0");
  EXPECT_EQ(message(cache->Truncate(id, -1)), "Truncate: position -1 is outside 0 … 0");
  EXPECT_EQ(message(cache->RemoveRange(id, 0, 4)), "RemoveRange: [0, 4) is not inside [0, 0)");
  EXPECT_EQ(message(cache->KeepOnly(id, 3, 2)), "KeepOnly: [3, 2) is not inside [0, 0)");
  EXPECT_EQ(message(cache->SlideWindow(id, 0, 4)), "SlideWindow: num_tokens 0 < 1");
  EXPECT_EQ(message(cache->SlideWindow(id, 4, -1)), "SlideWindow: sink_tokens -1 < 0");
  EXPECT_EQ(message(cache->Describe(id, 2).status()), "Describe: layer 2 is outside 0 … 1");
  float out = 0.0f;
  EXPECT_EQ(message(cache->ReadRows(id, 0, 2, Part::kKey, 0, 0, &out).status()),
            "ReadRows: kv_head 2 is outside 0 … 1");
  EXPECT_EQ(message(cache->ReadRows(id, -1, 0, Part::kKey, 0, 0, &out).status()),
            "ReadRows: layer -1 is outside 0 … 1");
  EXPECT_EQ(message(cache->ReadRows(id, 0, 0, Part::kKey, 0, 0, nullptr).status()),
            "ReadRows: out is null");
}

TEST(CacheSequenceErrors, AFreedSequenceStaysFreed) {
  auto cache = MakeCache(ShapeOf({}), "f16");
  const SequenceId id = *cache->CreateSequence();
  ASSERT_OK(cache->Free(id));
  float out = 0.0f;
  const StepEntry entry = {id, 1};
  const AttendRequest request = {id, 1, &out, 0, 0, &out, 0, 0, nullptr};
  for (const Status& status :
       {cache->Free(id), cache->Fork(id).status(), cache->Truncate(id, 0),
        cache->RemoveRange(id, 0, 0), cache->KeepOnly(id, 0, 0), cache->SlideWindow(id, 1, 0),
        cache->Describe(id, 0).status(), cache->MaxStepTokens(id).status(),
        cache->BeginStep({&entry, 1}), cache->EndPrompt(id), cache->Attend(0, {&request, 1}, {}),
        cache->ReadRows(id, 0, 0, Part::kKey, 0, 0, &out).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "sequence 1 has been freed");
  }
  EXPECT_EQ(cache->Free({77}).message(), "sequence 77 does not exist");
  EXPECT_EQ(cache->Free({0}).message(), "sequence 0 does not exist");
  EXPECT_NE(cache->CreateSequence()->value, id.value);
}

}  // namespace cache_sequence_test
}  // namespace varve
