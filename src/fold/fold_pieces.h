// Which tokens of a prompt fold= puts together: a pure function of lengths.
//
// The first image_tokens positions and the text behind them are segments of their own. A segment of
// at least min_groups groups of `factor` tokens becomes one row a group; what is left over at its
// end, and a shorter segment, stay as they are. Where positions have been removed, each run of
// neighbours is a segment.

#ifndef VARVE_FOLD_FOLD_PIECES_H_
#define VARVE_FOLD_FOLD_PIECES_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace varve {

struct FoldSizes {
  int factor = 0;
  int min_groups = 0;
  int64_t image_tokens = 0;
  bool has_image = false;  // without networks for it the image stays as it is
  // Positions before it stay as they are: they are no part of this prompt.
  int64_t fold_begin = 0;
  // Positions from here on stay as they are: the newest tokens matter most to what follows.
  int64_t fold_end = std::numeric_limits<int64_t>::max();
};

// Positions [begin, end) of which every one is there.
struct PositionRun {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const PositionRun&) const = default;
};

// Consecutive rows of the result.
struct FoldPiece {
  int64_t first_position = 0;
  int64_t num_rows = 0;
  int tokens_per_row = 1;  // 1: rows as they were
  bool image = false;      // of folded rows: which networks fold them
  int64_t end_position() const { return first_position + num_rows * tokens_per_row; }
  bool operator==(const FoldPiece&) const = default;
};

// The pieces that a prompt becomes, ascending; neighbours that both stay as they are come as one.
// `runs` ascend and do not touch.
std::vector<FoldPiece> CutForFold(std::span<const PositionRun> runs, const FoldSizes& sizes);

}  // namespace varve

#endif  // VARVE_FOLD_FOLD_PIECES_H_
