#include "pages/packed_page.h"

#include <string_view>

namespace varve {

store::PartShape PartShapeOf(const Rung& rung, Part part, int dim, int page_tokens) {
  store::PartShape shape;
  shape.num_heads = 1;
  if (rung.key_space() == KeySpace::kCodebook) {
    // Strips have a multiple of 64 bytes, up to 98560: two rows of half of them.
    const size_t bytes = rung.StripBytes({0, 0, dim, page_tokens});
    shape.lane = store::LaneType::kBytes;
    shape.layout = store::PartLayout::kRows;
    shape.num_rows = 2;
    shape.head_dim = static_cast<int>(bytes / 2);
    return shape;
  }
  const std::string_view name = rung.name();
  shape.lane = name == "f32"              ? store::LaneType::kF32
               : name == "bf16"           ? store::LaneType::kBF16
               : name.starts_with("q8_0") ? store::LaneType::kQ8
               : name.starts_with("q4_0") ? store::LaneType::kQ4
                                          : store::LaneType::kF16;
  shape.layout = part == Part::kKey ? store::PartLayout::kKey : store::PartLayout::kValue;
  shape.num_rows = page_tokens;
  shape.head_dim = dim;
  return shape;
}

}  // namespace varve
