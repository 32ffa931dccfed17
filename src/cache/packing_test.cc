#include "cache/packing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "pages/page_testing.h"
#include "tests/cache/packing_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace packing_test {

// Pages of 16 tokens and 4 KiB: the last two of a sequence are hot, groups are of one page.
class PackingTest : public testing::Test {
 protected:
  PackingTest() { UseMode(PackingMode::kStore); }

  void UseMode(PackingMode mode) {
    plans_.clear();
    for (int layer = 0; layer < 2; ++layer) {
      LayerPlan& plan = plans_.emplace_back();
      plan.open_rung = &f16_;
      plan.stages = {{&f16_, &f16_, 0}};
      plan.pack = PackRule{mode, 0, 32, 16, 16};
    }
  }
  Packing MakePacking(PackWork* work = CodecPackWork()) {
    return {SmallPageShape(2), plans_, settings_, &store_, executor_.get(), work};
  }
  // Four values only: rows that a codec can make smaller.
  void WriteCoarseRows(const Page& page, TestRandom& random) {
    for (int head = 0; head < 2; ++head) {
      for (const Part part : kParts) {
        const StripShape shape = store_.ShapeOf(part, page.layer, head);
        std::vector<float> rows(static_cast<size_t>(page.rows) * 32);
        for (float& value : rows) value = static_cast<float>(random.Bits() % 4);
        f16_.WriteRows(part, shape, page.Strip(part, head), 0, page.rows, rows.data(), 32);
      }
    }
  }
  // Sealed pages in both layers.
  Sequence MakeSequence(int64_t tokens) {
    TestRandom random(9);
    Sequence sequence;
    sequence.next_position = tokens;
    for (int layer = 0; layer < 2; ++layer) {
      LayerTable& table = sequence.layers.emplace_back(&schedule_);
      GrowTable(store_, SmallPageShape(2), layer, tokens, f16_, random, &table);
      for (size_t i = 0; i < table.size(); ++i) {
        WriteCoarseRows(*table.entries()[i].page, random);
        store_.SetLife(table.entries()[i].page.get(), PageState::kSealed);
        table.Demote(i, table.entries()[i].page, 0);
      }
    }
    return sequence;
  }
  // "PPr": packed, packed with its raw strips beside, or raw.
  static std::string Text(const PageTable& table) {
    std::string text;
    for (const TableEntry& entry : table.entries())
      text += entry.page->packed() == nullptr ? "r" : entry.page->HasRaw() ? "B" : "P";
    return text;
  }
  static LosslessStats StatsOf(const Packing& packing) {
    LosslessStats stats;
    packing.AddTo(&stats);
    return stats;
  }
  Status Prepare(Packing& packing, const Sequence& sequence, int layer) {
    const Sequence* const sequences[] = {&sequence};
    return packing.Prepare(layer, sequences);
  }

  const Rung& f16_ = TestRung("f16");
  const Rung& q8_ = TestRung("q8_0");
  PageSchedule schedule_{.page_tokens = 16, .open_rung = &f16_, .from_age = {0}};
  std::vector<LayerPlan> plans_;
  PackSettings settings_;
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  CountingMemory memory_;
  PageStore store_{SmallPageShape(2), PoolShare(&memory_, 0)};
};

TEST_F(PackingTest, PacksWhatIsColdAndLeavesWhatIsHot) {
  Sequence sequence = MakeSequence(96);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  EXPECT_EQ(Text(sequence.layers[0]), "PPPPrr");
  EXPECT_EQ(Text(sequence.layers[1]), "PPPPrr");
  EXPECT_EQ(StatsOf(packing).pages_packed, 8u);
  EXPECT_EQ(StatsOf(packing).raw_bytes, 8u * 4096u);
  EXPECT_LT(StatsOf(packing).compressed_bytes, 8u * 4096u * 95 / 100);
}

TEST_F(PackingTest, LooksForColdPagesEverySixteenTokensOnly) {
  Sequence sequence = MakeSequence(95);
  Packing packing = MakePacking();
  packing.Advance(sequence, 3);  // 92 … 95: no multiple of 16 between
  packing.Wait();
  EXPECT_EQ(Text(sequence.layers[0]), "rrrrrr");
}

TEST_F(PackingTest, WhatComesOutIsWhatWentIn) {
  Sequence sequence = MakeSequence(96);
  const std::vector<float> before =
      RowsOf(store_, *sequence.layers[1].entries()[2].page, Part::kValue, 1);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  Page* page = sequence.layers[1].entries()[2].page.get();
  ASSERT_EQ(page->state(), PageState::kPacked);
  ASSERT_OK(packing.UnpackForGood(page));
  EXPECT_EQ(page->state(), PageState::kSealed);
  EXPECT_EQ(RowsOf(store_, *page, Part::kValue, 1), before);
}

TEST_F(PackingTest, OnlyStoreGivesRawBytesUp) {
  for (const PackingMode mode : {PackingMode::kProbe, PackingMode::kFull}) {
    UseMode(mode);
    Sequence sequence = MakeSequence(96);
    Packing packing = MakePacking();
    packing.Advance(sequence, 16);
    packing.Wait();
    EXPECT_EQ(Text(sequence.layers[0]), "rrrrrr");
    EXPECT_EQ(StatsOf(packing).pages_packed, 8u);
    EXPECT_GT(StatsOf(packing).compressed_bytes, 0u);
  }
}

TEST_F(PackingTest, APageThatAgeWillDemoteFurtherIsNotPacked) {
  for (LayerPlan& plan : plans_) plan.stages.push_back({&q8_, &q8_, 1000});
  Sequence sequence = MakeSequence(96);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  EXPECT_EQ(Text(sequence.layers[0]), "rrrrrr");
  // Where only a policy would, it is.
  for (LayerPlan& plan : plans_) plan.stages[1].from_age = LayerPlan::kNeverByAge;
  packing.Advance(sequence, 16);
  packing.Wait();
  EXPECT_EQ(Text(sequence.layers[0]), "PPPPrr");
}

TEST_F(PackingTest, AJobThatFailsLeavesItsPagesRaw) {
  Sequence sequence = MakeSequence(96);
  InterruptedWork failing([] { return Internal("injected"); });
  Packing packing = MakePacking(&failing);
  packing.Advance(sequence, 16);
  packing.Wait();
  EXPECT_EQ(Text(sequence.layers[0]), "rrrrrr");
  EXPECT_EQ(StatsOf(packing).fallbacks, 8u);
  EXPECT_EQ(StatsOf(packing).pages_packed, 0u);
}

TEST_F(PackingTest, AFullQueuePutsPagesOff) {
  settings_.max_queue = 1;
  Sequence first = MakeSequence(96);
  Sequence second = MakeSequence(96);
  std::atomic<bool> open{false};
  InterruptedWork waiting([&] { return WaitFor(open); });
  Packing packing = MakePacking(&waiting);
  // Four groups: one is with the worker, one waits.
  packing.Advance(first, 16);
  packing.Advance(second, 16);
  EXPECT_GE(StatsOf(packing).backpressure_skips, 2u);
  EXPECT_EQ(Text(second.layers[1]), "rrrrrr");
  open = true;
  for (int i = 0; i < 4; ++i) {
    packing.Wait();
    packing.Advance(first, 16);
    packing.Advance(second, 16);
  }
  packing.Wait();
  for (const Sequence* sequence : {&first, &second}) {
    EXPECT_EQ(Text(sequence->layers[0]), "PPPPrr");
    EXPECT_EQ(Text(sequence->layers[1]), "PPPPrr");
  }
}

TEST_F(PackingTest, RestoresNoMoreThanPackingSaves) {
  settings_.decode_cache_pages = 100;
  settings_.prefetch = false;
  Sequence sequence = MakeSequence(640);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  ASSERT_OK(Prepare(packing, sequence, 0));
  EXPECT_GT(store_.raw_bytes(), 0u);
  EXPECT_LE(store_.raw_bytes(), store_.BytesSaved());
  EXPECT_GT(StatsOf(packing).decode_cache_misses, 0u);
  EXPECT_EQ(StatsOf(packing).decode_cache_hits, 0u);
  const uint64_t restored = StatsOf(packing).pages_restored;
  packing.Finish(0, Status());
  packing.EndStep();
  ASSERT_OK(Prepare(packing, sequence, 0));
  EXPECT_EQ(StatsOf(packing).decode_cache_hits, restored);
  packing.MakeRoomForStep();
  EXPECT_EQ(store_.raw_bytes(), 0u);
}

TEST_F(PackingTest, ADamagedPageFailsTheLayerAndLeavesNothingBehind) {
  settings_.decode_cache_pages = 100;
  settings_.prefetch = false;
  Sequence sequence = MakeSequence(640);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  const PackedPage& packed = *sequence.layers[0].entries()[0].page->packed()->packed;
  packed.data[packed.ends[0] - 5] ^= std::byte{4};
  const Status status = Prepare(packing, sequence, 0);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("layer 0, page at 0"), std::string::npos) << status.message();
  EXPECT_EQ(store_.raw_bytes(), 0u);
  EXPECT_EQ(StatsOf(packing).restore_failures, 1u);
  EXPECT_EQ(packing.UnpackForGood(sequence.layers[0].entries()[0].page.get()).code(),
            StatusCode::kDataLoss);
}

TEST_F(PackingTest, ARestoreThatThrowsKeepsNoRawStrips) {
  settings_.decode_cache_pages = 100;
  settings_.prefetch = false;
  Sequence sequence = MakeSequence(640);
  FailingExecutor executor;
  Packing packing(SmallPageShape(2), plans_, settings_, &store_, &executor, CodecPackWork());
  packing.Advance(sequence, 16);
  packing.Wait();
  executor.calls_left = 0;
  EXPECT_THROW((void)Prepare(packing, sequence, 0).ok(), std::bad_alloc);
  EXPECT_EQ(store_.raw_bytes(), 0u);
  EXPECT_TRUE(store_.restored().empty());
  executor.calls_left = -1;
  packing.EndStep();
  ASSERT_OK(Prepare(packing, sequence, 0));
  EXPECT_GT(store_.raw_bytes(), 0u);
}

TEST_F(PackingTest, ReadingAheadThatFindsNoMemoryIsLeftOut) {
  settings_.decode_cache_pages = 100;
  Sequence sequence = MakeSequence(640);
  Packing packing = MakePacking();
  packing.Advance(sequence, 16);
  packing.Wait();
  // There is a slot for the first page of layer 1, but no slab for the size of the second.
  LayerTable& table = sequence.layers[1];
  const PageRef second = *store_.Make(1, 16, PageState::kSealed, q8_, q8_);
  TestRandom random(4);
  FillPage(store_, 2, 16, random, second.get());
  ASSERT_OK(store_.Pack(second.get(), PackStrips(store_, 2, *second)));
  table.Demote(1, second, 0);
  store_.pool().DropWarm();
  sequence.layers[0].Truncate(0);
  ASSERT_GT(store_.BytesSaved(), SlotBytes(4096) + SlotBytes(second->bytes));
  memory_.throws = true;
  memory_.maps_left = 0;
  ASSERT_OK(Prepare(packing, sequence, 0));
  EXPECT_EQ(store_.raw_bytes(), 0u);
  memory_.maps_left = -1;
  ASSERT_OK(Prepare(packing, sequence, 0));
  EXPECT_GT(store_.raw_bytes(), 0u);
  packing.Wait();
  packing.Collect();
  EXPECT_EQ(store_.raw_bytes(), 0u);
}

TEST_F(PackingTest, JobsThatAreUnderWayGiveTheirPagesBackAtTheEnd) {
  std::atomic<bool> open{false};
  InterruptedWork waiting([&] { return WaitFor(open); });
  {
    Sequence sequence = MakeSequence(96);
    Packing packing = MakePacking(&waiting);
    packing.Advance(sequence, 16);
    sequence.layers.clear();  // the jobs alone hold pages now
    open = true;
  }
  CacheReport report;
  store_.AddTo(&report);
  EXPECT_EQ(report.pages, 0u);
}

}  // namespace packing_test
}  // namespace varve
