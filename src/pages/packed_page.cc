#include "pages/packed_page.h"

namespace varve {

store::PartShape PartShapeOf(const RungDescriptor& rung, Part part, int dim, int page_tokens) {
  store::PartShape shape;
  shape.lane = rung.lane;
  shape.num_heads = 1;
  if (rung.lane == LaneType::kBytes) {
    // Strips have an even number of bytes, up to 131070: two rows of half of them.
    shape.layout = store::PartLayout::kRows;
    shape.num_rows = 2;
    shape.head_dim = static_cast<int>(rung.StripBytes(part, {0, 0, dim, page_tokens}) / 2);
    return shape;
  }
  shape.layout = part == Part::kKey ? store::PartLayout::kKey : store::PartLayout::kValue;
  shape.num_rows = page_tokens;
  shape.head_dim = dim;
  return shape;
}

}  // namespace varve
