#include "cache/folding.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fold/fold_testing.h"
#include "pages/page_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace folding_test {

// Four tokens a row, from two rows on.
class FoldingTest : public testing::Test {
 protected:
  FoldingTest()
      : compressor_(RandomCompressor({.dtype = CompressorDtype::kF32,
                                      .num_layers = 2,
                                      .head_dim = 32,
                                      .factor = 4,
                                      .min_groups = 2,
                                      .has_image = false})) {
    for (int layer = 0; layer < 2; ++layer) {
      LayerPlan& plan = plans_.emplace_back();
      plan.open_rung = &f32_;
      plan.stages = {{&f32_, &f32_, 0}};
      plan.fold = FoldRule{&compressor_, 0, false};
    }
    schedules_.assign(2, {.page_tokens = 16, .open_rung = &f32_, .from_age = {0}});
  }

  Folding MakeFolding(PageStore* store) {
    return {SmallPageShape(2), plans_, ActiveKernels(), store, executor_.get()};
  }
  Sequence MakeSequence(PageStore& store, int64_t tokens) {
    TestRandom random(5);
    Sequence sequence;
    sequence.next_position = tokens;
    for (int layer = 0; layer < 2; ++layer) {
      LayerTable& table = sequence.layers.emplace_back(&schedules_[static_cast<size_t>(layer)]);
      GrowTable(store, SmallPageShape(2), layer, tokens, f32_, random, &table);
    }
    return sequence;
  }
  // Rows of one strip over all pages of a table.
  static std::vector<float> AllRows(const PageStore& store, const PageTable& table, Part part,
                                    int head) {
    std::vector<float> all;
    for (const TableEntry& entry : table.entries()) {
      const std::vector<float> rows = RowsOf(store, *entry.page, part, head);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  // "0:16x4 64:1x4 68:2x1": where each page begins, its rows, and the tokens of a row.
  static std::string Text(const PageTable& table) {
    std::string text;
    for (const TableEntry& entry : table.entries()) {
      text += std::to_string(entry.page->first_position) + ":" + std::to_string(entry.rows) + "x" +
              std::to_string(entry.page->tokens_per_row) + " ";
    }
    return text;
  }

  const Rung& f32_ = TestRung("f32");
  Compressor compressor_;
  std::vector<LayerPlan> plans_;
  std::vector<PageSchedule> schedules_;
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  PageStore store_{SmallPageShape(2), PoolShare(SystemPageMemory(), 0)};
};

TEST_F(FoldingTest, GroupsOfTokensBecomeRowsAndTheRestStays) {
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 70);
  folding.Begin(sequence);
  EXPECT_TRUE(sequence.layers[1].held());
  const std::vector<float> before = AllRows(store_, sequence.layers[1], Part::kValue, 1);
  ASSERT_OK(folding.Fold(sequence));
  LayerTable& table = sequence.layers[1];
  EXPECT_FALSE(table.held());
  EXPECT_EQ(Text(table), "0:16x4 64:1x4 68:2x1 ");
  const std::vector<float> after = AllRows(store_, table, Part::kValue, 1);
  const std::vector<double> expected = FoldReference(compressor_.Mlp(1, CompressorPart::kTextValue),
                                                     compressor_.dtype, before.data(), 17);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(after[i], expected[i], 2e-6) << i;
  // The last two tokens, as they were.
  EXPECT_TRUE(std::equal(after.end() - 64, after.end(), before.end() - 64));
  // Rows that are not written yet will follow them.
  EXPECT_TRUE(table.CanGrow(70));
  EXPECT_EQ(sequence.next_position, 70);
  EXPECT_EQ(folding.stats().prompts, 1u);
  EXPECT_EQ(folding.stats().tokens, 140u);  // of two layers
  EXPECT_EQ(folding.stats().rows, 2u * 19u);
  EXPECT_EQ(folding.stats().rows_raw, 4u);
}

TEST_F(FoldingTest, ALayerWithoutACompressorKeepsItsPages) {
  plans_[0].fold.reset();
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 32);
  folding.Begin(sequence);
  EXPECT_FALSE(sequence.layers[0].held());
  const PageRef kept = sequence.layers[0].entries()[1].page;
  ASSERT_OK(folding.Fold(sequence));
  EXPECT_EQ(sequence.layers[0].entries()[1].page, kept);
  EXPECT_EQ(Text(sequence.layers[1]), "0:8x4 ");
}

TEST_F(FoldingTest, AShortPromptIsNotFolded) {
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 7);  // min_groups * factor - 1
  folding.Begin(sequence);
  const PageRef page = sequence.layers[0].entries()[0].page;
  ASSERT_OK(folding.Fold(sequence));
  EXPECT_EQ(sequence.layers[0].entries()[0].page, page);
  EXPECT_FALSE(sequence.layers[0].held());
  EXPECT_EQ(folding.stats().prompts, 0u);
}

TEST_F(FoldingTest, WithoutMemoryForOneLayerNothingHasChanged) {
  // Ten pages of 8 KiB, and room for one folded page more.
  PageStore store(SmallPageShape(2), PoolShare(SystemPageMemory(), 11 * 8192));
  Folding folding = MakeFolding(&store);
  Sequence sequence = MakeSequence(store, 80);
  folding.Begin(sequence);
  const PageRef first = sequence.layers[0].entries()[0].page;
  const Status status = folding.Fold(sequence);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(status.message().starts_with("fold, layer 0: ")) << status.message();
  EXPECT_EQ(sequence.layers[0].entries()[0].page, first);
  EXPECT_EQ(Text(sequence.layers[0]), "0:16x1 16:16x1 32:16x1 48:16x1 64:16x1 ");
  EXPECT_TRUE(sequence.layers[0].held());
  CacheReport report;
  store.AddTo(&report);
  EXPECT_EQ(report.pages, 10u);  // what had been made for it is gone
}

TEST_F(FoldingTest, ResultsDoNotDependOnThreads) {
  std::vector<std::vector<float>> rows;
  for (const int threads : {1, 3}) {
    executor_ = MakeThreadPool(threads);
    Folding folding = MakeFolding(&store_);
    Sequence sequence = MakeSequence(store_, 100);
    folding.Begin(sequence);
    ASSERT_OK(folding.Fold(sequence));
    rows.push_back(AllRows(store_, sequence.layers[0], Part::kKey, 1));
  }
  EXPECT_EQ(rows[0], rows[1]);
}

TEST_F(FoldingTest, ScoresGoWithTheTokens) {
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 72);
  LayerTable& table = sequence.layers[0];
  for (size_t i = 0; i < table.size(); ++i) {
    table.score(i).Add(0.1 * static_cast<double>(i + 1));
    table.score(i).FinishBucket(0.9);
  }
  folding.Begin(sequence);
  ASSERT_OK(folding.Fold(sequence));
  ASSERT_EQ(Text(table), "0:16x4 64:2x4 ");
  EXPECT_NEAR(table.entries()[0].score.smooth(), 0.1 + 0.2 + 0.3 + 0.4, 1e-6);
  EXPECT_NEAR(table.entries()[1].score.smooth(), 0.5, 1e-6);
}

TEST_F(FoldingTest, ALaterPromptLeavesWhatCameBefore) {
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 60);
  sequence.prompt_ended = true;
  sequence.prompt_begin = 20;
  folding.Begin(sequence);
  const PageRef before = sequence.layers[0].entries()[0].page;
  const std::vector<float> rows = AllRows(store_, sequence.layers[0], Part::kKey, 0);
  ASSERT_OK(folding.Fold(sequence));
  EXPECT_EQ(Text(sequence.layers[0]), "0:16x1 16:4x1 20:10x4 ");
  EXPECT_EQ(sequence.layers[0].entries()[0].page, before);
  const std::vector<float> after = AllRows(store_, sequence.layers[0], Part::kKey, 0);
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 20 * 32, after.begin()));
}

TEST_F(FoldingTest, RestartedPositionsCountRows) {
  for (LayerPlan& plan : plans_) plan.fold->restart_positions = true;
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 70);
  folding.Begin(sequence);
  ASSERT_OK(folding.Fold(sequence));
  EXPECT_EQ(Text(sequence.layers[0]), "0:16x1 16:1x1 17:2x1 ");
  EXPECT_EQ(sequence.next_position, 19);
  EXPECT_EQ(sequence.tokens_seen(), 70);
}

TEST_F(FoldingTest, APromptThatIsSkippedIsCountedAndNoLongerHeld) {
  Folding folding = MakeFolding(&store_);
  Sequence sequence = MakeSequence(store_, 40);
  folding.Begin(sequence);
  folding.Skip(sequence);
  EXPECT_FALSE(sequence.layers[0].held());
  EXPECT_EQ(folding.stats().prompts_skipped, 1u);
  EXPECT_EQ(Text(sequence.layers[0]), "0:16x1 16:16x1 32:8x1 ");
}

}  // namespace folding_test
}  // namespace varve
