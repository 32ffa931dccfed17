#include "cache/ageing.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "attention/backend_testing.h"
#include "rungs/rung_table.h"

namespace varve {
namespace ageing_test {

class AgeingTest : public testing::Test {
 protected:
  AgeingTest()
      : executor_(MakeThreadPool(1)),
        store_({.num_layers = 1,
                .num_kv_heads = 1,
                .group_size = 1,
                .key_dim = 32,
                .value_dim = 32,
                .page_tokens = 16},
               PoolShare(SystemPageMemory(), 0)) {
    plan_.open_rung = f16_.get();
    plan_.stages = {{q8_.get(), q8_.get(), 0}, {q4_.get(), q4_.get(), 40}};
    schedule_ = ScheduleOf(plan_, 16);
  }

  static std::unique_ptr<const Rung> MakeRung(const char* name) {
    return FindRung(name)->Make({&ActiveKernels(), nullptr});
  }
  PageTable TableOf(int pages) {
    PageTable table(&schedule_);
    for (int i = 0; i < pages; ++i) {
      TableEntry entry;
      entry.page = *store_.Make(0, 16 * i, PageState::kFull, *f16_, *f16_);
      entry.page->rows = 16;
      table.Add(std::move(entry));
      table.AddRows(table.size() - 1, 16);
    }
    return table;
  }

  std::unique_ptr<const Rung> f16_ = MakeRung("f16");
  std::unique_ptr<const Rung> q8_ = MakeRung("q8_0");
  std::unique_ptr<const Rung> q4_ = MakeRung("q4_0");
  std::unique_ptr<Executor> executor_;
  NotingBackend backend_;
  PageStore store_;
  LayerPlan plan_;
  PageSchedule schedule_;
};

TEST_F(AgeingTest, EncodesPagesInBatches) {
  Ageing ageing(&store_, &backend_, executor_.get(), 4);
  PageTable table = TableOf(10);
  Ageing::Counters counters;
  EXPECT_TRUE(ageing.Apply(plan_, 160, table, &counters));
  // Those that end 40 tokens or more before go on to the second stage at once.
  EXPECT_EQ(backend_.batches, (std::vector<size_t>{4, 4, 2}));
  EXPECT_EQ(counters.sealed, 10u);
  EXPECT_TRUE(table.entries()[0].page->HasRungs(q4_.get(), q4_.get()));
  EXPECT_TRUE(table.entries()[9].page->HasRungs(q8_.get(), q8_.get()));
}

TEST_F(AgeingTest, ASharedPageIsEncodedOnceAndAdopted) {
  Ageing ageing(&store_, &backend_, executor_.get(), 16);
  PageTable first = TableOf(1);
  PageTable second = first;
  Ageing::Counters counters;
  EXPECT_TRUE(ageing.Apply(plan_, 16, first, &counters));
  EXPECT_TRUE(ageing.Apply(plan_, 16, second, &counters));
  EXPECT_EQ(counters.sealed, 1u);
  EXPECT_EQ(counters.adopted, 1u);
  EXPECT_EQ(first.entries()[0].page.get(), second.entries()[0].page.get());
  EXPECT_EQ(backend_.batches, std::vector<size_t>{1});
}

TEST_F(AgeingTest, APageThatCannotBeReadStaysAndFallsDueAgain) {
  Ageing ageing(&store_, &backend_, executor_.get(), 16);
  PageTable table = TableOf(1);
  Page* page = table.entries()[0].page.get();
  Ageing::Counters counters;
  backend_.fails = true;
  EXPECT_FALSE(ageing.Apply(plan_, 16, table, &counters));
  EXPECT_EQ(counters.not_restored, 1u);
  EXPECT_EQ(table.entries()[0].page.get(), page);
  EXPECT_EQ(table.NextEvent(), 16);
  backend_.fails = false;
  EXPECT_TRUE(ageing.Apply(plan_, 17, table, &counters));
  EXPECT_EQ(table.entries()[0].stage, 0);
}

TEST_F(AgeingTest, DropsWhatLeavesTheWindowBeforeItEncodes) {
  plan_.window_tokens = 20;
  schedule_ = ScheduleOf(plan_, 16);
  Ageing ageing(&store_, &backend_, executor_.get(), 16);
  PageTable table = TableOf(4);
  Ageing::Counters counters;
  EXPECT_TRUE(ageing.Apply(plan_, 64, table, &counters));
  EXPECT_EQ(counters.dropped, 2u);  // those that end at 16 and 32
  EXPECT_EQ(backend_.batches, std::vector<size_t>{2});
  EXPECT_EQ(table.size(), 2u);
}

}  // namespace ageing_test
}  // namespace varve
