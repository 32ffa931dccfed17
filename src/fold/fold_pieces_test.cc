#include "fold/fold_pieces.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve {
namespace fold_pieces_test {

std::vector<FoldPiece> Cut(int64_t tokens, const FoldSizes& sizes) {
  const PositionRun run{0, tokens};
  return CutForFold({&run, tokens > 0 ? 1u : 0u}, sizes);
}

int64_t Rows(const std::vector<FoldPiece>& pieces) {
  int64_t rows = 0;
  for (const FoldPiece& piece : pieces) rows += piece.num_rows;
  return rows;
}

TEST(FoldPieces, ElevenImageAndTenTextTokensByFiveAreFiveRows) {
  const std::vector<FoldPiece> pieces =
      Cut(21, {.factor = 5, .min_groups = 2, .image_tokens = 11, .has_image = true});
  const std::vector<FoldPiece> expected = {{0, 2, 5, true}, {10, 1, 1, false}, {11, 2, 5, false}};
  EXPECT_EQ(pieces, expected);
  EXPECT_EQ(Rows(pieces), 5);
}

TEST(FoldPieces, TooFewGroupsStayAsTheyAre) {
  for (int tokens = 0; tokens < 40; ++tokens) {
    const std::vector<FoldPiece> pieces = Cut(tokens, {.factor = 5, .min_groups = 3});
    if (tokens < 15) {
      EXPECT_EQ(Rows(pieces), tokens);
    } else {
      EXPECT_EQ(Rows(pieces), tokens / 5 + tokens % 5);
      EXPECT_EQ(pieces.front().tokens_per_row, 5);
    }
  }
}

TEST(FoldPieces, AThresholdOfZeroStillNeedsAGroup) {
  EXPECT_EQ(Rows(Cut(4, {.factor = 5, .min_groups = 0})), 4);
  EXPECT_EQ(Rows(Cut(5, {.factor = 5, .min_groups = 0})), 1);
}

TEST(FoldPieces, WithoutImageNetworksTheImageStays) {
  const std::vector<FoldPiece> expected = {{0, 11, 1, false}, {11, 2, 5, false}};
  EXPECT_EQ(Cut(21, {.factor = 5, .min_groups = 2, .image_tokens = 11}), expected);
}

TEST(FoldPieces, NeighboursThatStayAreOnePiece) {
  // 1 left over of the image, then a text that is too short.
  const std::vector<FoldPiece> expected = {{0, 2, 5, true}, {10, 8, 1, false}};
  EXPECT_EQ(Cut(18, {.factor = 5, .min_groups = 2, .image_tokens = 11, .has_image = true}),
            expected);
}

TEST(FoldPieces, AnImageLongerThanThePromptIsAllOfIt) {
  const std::vector<FoldPiece> expected = {{0, 4, 5, true}};
  EXPECT_EQ(Cut(20, {.factor = 5, .min_groups = 2, .image_tokens = 1000, .has_image = true}),
            expected);
}

TEST(FoldPieces, NoGroupReachesOverAHole) {
  const PositionRun runs[] = {{0, 7}, {8, 18}, {30, 32}};
  const std::vector<FoldPiece> expected = {
      {0, 3, 2, false}, {6, 1, 1, false}, {8, 5, 2, false}, {30, 1, 2, false}};
  EXPECT_EQ(CutForFold(runs, {.factor = 2, .min_groups = 1}), expected);
}

TEST(FoldPieces, TheNewestTokensStay) {
  const std::vector<FoldPiece> expected = {{0, 3, 4, false}, {12, 8, 1, false}};
  EXPECT_EQ(Cut(20, {.factor = 4, .min_groups = 2, .fold_end = 15}), expected);
  EXPECT_EQ(Rows(Cut(20, {.factor = 4, .fold_end = -5})), 20);
  const std::vector<FoldPiece> image = {{0, 3, 4, true}, {12, 8, 1, false}};
  EXPECT_EQ(Cut(20, {.factor = 4, .image_tokens = 18, .has_image = true, .fold_end = 15}), image);
}

TEST(FoldPieces, EveryPositionIsInExactlyOnePiece) {
  for (int tokens = 1; tokens < 60; ++tokens) {
    for (int image = 0; image <= tokens; image += 7) {
      int64_t next = 0;
      for (const FoldPiece& piece :
           Cut(tokens, {.factor = 4, .min_groups = 2, .image_tokens = image, .has_image = true})) {
        EXPECT_EQ(piece.first_position, next);
        next = piece.end_position();
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

TEST(FoldPieces, WhatLiesBeforeThePromptStays) {
  const std::vector<FoldPiece> expected = {{0, 7, 1, false}, {7, 4, 3, false}, {19, 1, 1, false}};
  EXPECT_EQ(Cut(20, {.factor = 3, .min_groups = 2, .fold_begin = 7}), expected);
  // Too short: one piece with what lies before.
  const std::vector<FoldPiece> whole = {{0, 20, 1, false}};
  EXPECT_EQ(Cut(20, {.factor = 3, .min_groups = 2, .fold_begin = 15}), whole);
  EXPECT_EQ(Cut(20, {.factor = 3, .min_groups = 2, .fold_begin = 100}), whole);
}

}  // namespace fold_pieces_test
}  // namespace varve
