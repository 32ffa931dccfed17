#include "fold/fold_pieces.h"

#include <algorithm>

namespace varve {
namespace {

void AddRaw(int64_t begin, int64_t end, std::vector<FoldPiece>* pieces) {
  if (begin == end) return;
  if (!pieces->empty() && pieces->back().tokens_per_row == 1 &&
      pieces->back().end_position() == begin) {
    pieces->back().num_rows += end - begin;
    return;
  }
  pieces->push_back({begin, end - begin, 1, false});
}

void AddSegment(int64_t begin, int64_t end, bool image, const FoldSizes& sizes,
                std::vector<FoldPiece>* pieces) {
  int64_t groups = (end - begin) / sizes.factor;
  if (groups < std::max(1, sizes.min_groups) || (image && !sizes.has_image)) groups = 0;
  if (groups > 0) pieces->push_back({begin, groups, sizes.factor, image});
  AddRaw(begin + groups * sizes.factor, end, pieces);
}

}  // namespace

std::vector<FoldPiece> CutForFold(std::span<const PositionRun> runs, const FoldSizes& sizes) {
  std::vector<FoldPiece> pieces;
  for (const PositionRun& run : runs) {
    const int64_t begin = std::clamp(sizes.fold_begin, run.begin, run.end);
    const int64_t end = std::clamp(sizes.fold_end, begin, run.end);
    const int64_t border = std::clamp(sizes.image_tokens, begin, end);
    AddRaw(run.begin, begin, &pieces);
    AddSegment(begin, border, true, sizes, &pieces);
    AddSegment(border, end, false, sizes, &pieces);
    AddRaw(end, run.end, &pieces);
  }
  return pieces;
}

}  // namespace varve
