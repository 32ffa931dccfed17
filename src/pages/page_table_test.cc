#include "pages/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "pages/page_store.h"
#include "rungs/rung_table.h"

namespace varve {
namespace page_table_test {

std::string Text(const std::vector<PageEvent>& events) {
  std::string text;
  for (const PageEvent& event : events) {
    text += std::to_string(event.position) + ":" + std::to_string(event.entry) +
            (event.drop ? "x " : ">" + std::to_string(event.stage) + " ");
  }
  return text;
}

// --- the schedule: a function of positions ---

TEST(PageSchedule, EveryStageIsAnEventOfItsOwn) {
  const PageSchedule schedule{.page_tokens = 16, .from_age = {0, 10, 25}};
  std::vector<PageEvent> events;
  schedule.AddEvents({16, 32, -1}, 3, 31, 100, &events);
  EXPECT_EQ(Text(events), "32:3>0 42:3>1 57:3>2 ");
  events.clear();
  schedule.AddEvents({16, 32, 0}, 3, 40, 56, &events);
  EXPECT_EQ(Text(events), "42:3>1 ");
}

TEST(PageSchedule, WhatWasDueEarlierFallsDueAtOnceInItsLastStage) {
  const PageSchedule schedule{.page_tokens = 16, .from_age = {0, 10, 25}};
  std::vector<PageEvent> events;
  schedule.AddEvents({0, 16, -1}, 0, 30, 60, &events);
  EXPECT_EQ(Text(events), "31:0>1 41:0>2 ");
}

TEST(PageSchedule, NothingFollowsTheWindow) {
  const PageSchedule schedule{
      .page_tokens = 16, .from_age = {0, 30}, .window_tokens = 20, .sink_tokens = 16};
  std::vector<PageEvent> events;
  schedule.AddEvents({16, 32, -1}, 1, 31, 200, &events);
  EXPECT_EQ(Text(events), "32:1>0 52:1x ");
  events.clear();
  schedule.AddEvents({0, 16, -1}, 0, 15, 200, &events);  // holds the sink
  EXPECT_EQ(Text(events), "16:0>0 46:0>1 ");
  EXPECT_EQ(schedule.FirstEvent({16, 32, 0}), 52);
  EXPECT_EQ(schedule.FirstEvent({0, 16, 1}), PageSchedule::kNoEvent);
}

TEST(PageSchedule, ExactPagesReachNoStageButLeaveTheWindow) {
  const PageSchedule schedule{
      .page_tokens = 16, .from_age = {0, 10}, .exact_tokens = 17, .window_tokens = 40};
  std::vector<PageEvent> events;
  schedule.AddEvents({0, 16, -1}, 0, 15, 200, &events);
  schedule.AddEvents({16, 32, -1}, 1, 31, 200, &events);  // touches token 16
  schedule.AddEvents({32, 48, -1}, 2, 47, 200, &events);
  EXPECT_EQ(Text(events), "56:0x 72:1x 48:2>0 58:2>1 88:2x ");
  EXPECT_EQ(schedule.FirstEvent({16, 32, -1}), 72);
  EXPECT_EQ(schedule.FirstEvent({32, 48, -1}), 48);
}

TEST(PageSchedule, StagesOfAPolicyAreNoMatterOfAge) {
  const PageSchedule schedule{.page_tokens = 16, .from_age = {0, PageSchedule::kNever}};
  EXPECT_EQ(schedule.FirstEvent({0, 16, 0}), PageSchedule::kNoEvent);
}

// --- the table ---

std::unique_ptr<const Rung> MakeTestRung(const char* name) {
  return FindRung(name)->Make({&ActiveKernels(), nullptr});
}

class PageTableTest : public testing::Test {
 protected:
  PageTableTest() : store_(Shape(), PoolShare(SystemPageMemory(), 0)), table_(&schedule_) {}

  static CacheShape Shape() {
    return {.num_layers = 1,
            .num_kv_heads = 1,
            .group_size = 1,
            .key_dim = 32,
            .value_dim = 32,
            .page_tokens = 16};
  }
  PageRef NewPage(int64_t first, const Rung& rung) {
    return *store_.Make(0, first, PageState::kFilling, rung, rung);
  }
  // Pages of 16 rows, the last one with what is left.
  void Fill(int rows) {
    for (int first = 0; first < rows; first += 16) {
      TableEntry entry;
      entry.page = NewPage(first, *f16_);
      table_.Add(std::move(entry));
      table_.AddRows(table_.size() - 1, std::min(16, rows - first));
    }
  }

  std::unique_ptr<const Rung> f16_ = MakeTestRung("f16");
  std::unique_ptr<const Rung> q8_ = MakeTestRung("q8_0");
  PageSchedule schedule_{.page_tokens = 16, .open_rung = f16_.get(), .from_age = {0, 40}};
  PageStore store_;
  PageTable table_;
};

TEST_F(PageTableTest, KeepsLiveRowsThroughEveryChange) {
  Fill(40);
  EXPECT_EQ(table_.live_rows(), 40);
  table_.Kill(10, 20);
  EXPECT_EQ(table_.live_rows(), 30);
  table_.Kill(0, 16);  // the first page is empty now
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_EQ(table_.live_rows(), 20);
  table_.Truncate(35);
  EXPECT_EQ(table_.live_rows(), 15);
  EXPECT_EQ(table_.edits(), 3u);
  EXPECT_EQ(table_.DropIf([](const TableEntry&) { return true; }), 2u);
  EXPECT_EQ(table_.live_rows(), 0);
}

TEST_F(PageTableTest, KnowsItsNextEventWithoutBeingTold) {
  EXPECT_EQ(table_.NextEvent(), PageSchedule::kNoEvent);
  Fill(15);
  EXPECT_EQ(table_.NextEvent(), PageSchedule::kNoEvent);  // can still grow
  table_.AddRows(0, 1);
  EXPECT_EQ(table_.NextEvent(), 16);
  table_.Demote(0, NewPage(0, *q8_), 0);
  EXPECT_EQ(table_.NextEvent(), 56);
  table_.SetHeld(true);
  EXPECT_EQ(table_.NextEvent(), PageSchedule::kNoEvent);
  table_.SetHeld(false);
  table_.Demote(0, NewPage(0, *q8_), 1);
  EXPECT_EQ(table_.NextEvent(), PageSchedule::kNoEvent);
}

// One answer for ageing, retention and steps: a sealed page that was cut takes no more rows.
TEST_F(PageTableTest, ACutPageGrowsOnlyIfItsRowsAreExact) {
  Fill(32);
  table_.Truncate(25);
  EXPECT_TRUE(table_.CanGrow(25));
  EXPECT_EQ(table_.RoomAt(25), 7);
  EXPECT_FALSE(table_.CanGrow(26));  // a hole
  EXPECT_FALSE(table_.IsComplete(1));

  table_.Demote(1, NewPage(16, *q8_), 0);
  table_.Truncate(20);
  EXPECT_FALSE(table_.CanGrow(20));
  EXPECT_EQ(table_.RoomAt(20), 0);
  EXPECT_TRUE(table_.IsComplete(1));
}

TEST_F(PageTableTest, RollsAStepBackWhole) {
  Fill(20);
  const int64_t event = table_.NextEvent();
  table_.AddRows(1, 12);
  TableEntry entry;
  entry.page = NewPage(32, *f16_);
  table_.Add(entry);
  table_.AddRows(2, 5);
  EXPECT_EQ(table_.live_rows(), 37);
  table_.RollBack(2, 4);
  EXPECT_EQ(table_.live_rows(), 20);
  EXPECT_EQ(table_.back().rows, 4);
  EXPECT_EQ(table_.NextEvent(), event);
  EXPECT_TRUE(table_.CanGrow(20));
}

TEST_F(PageTableTest, CopiesSharePagesAndFreeThemOnce) {
  Fill(32);
  Page* page = table_.entries()[0].page.get();
  {
    const PageTable copy = table_;
    EXPECT_EQ(page->refs, 2u);
  }
  EXPECT_EQ(page->refs, 1u);
  table_.DropIf([](const TableEntry&) { return true; });
  CacheReport report;
  store_.AddTo(&report);
  EXPECT_EQ(report.pages, 0u);
}

TEST_F(PageTableTest, EventsDropBeforeTheyDemote) {
  schedule_.window_tokens = 16;
  Fill(48);
  EXPECT_EQ(Text(table_.Events(47, 48)), "48:0x 48:1x 48:2>0 ");
}

}  // namespace page_table_test
}  // namespace varve
