#include "store/gear_part.h"

#include <fmt/format.h>

#include "store/gear_frame.h"

namespace varve::store {
namespace {

size_t WordBytes(const PartShape& shape) { return shape.lane == LaneType::kF32 ? 4 : 2; }

}  // namespace

bool AppendGear(const PartView& part, const GearPredictorSet& set, size_t limit,
                std::vector<std::byte>& out) {
  const auto num_rows = static_cast<size_t>(part.shape.num_rows);
  const size_t row_bytes = part.shape.Bytes() / num_rows;
  std::vector<std::byte> rows(part.shape.Bytes());
  for (size_t row = 0; row < num_rows; ++row)
    GatherRow(part, static_cast<int>(row), rows.data() + row * row_bytes);
  const Result<std::vector<std::byte>> frame = GearEncode(rows, WordBytes(part.shape), set);
  if (!frame.ok() || frame->size() > limit) return false;
  AppendBytes(out, *frame);
  return true;
}

Status ReadGear(ByteReader& reader, const PartShape& shape, const PartBuffer& out) {
  if (!IsFloat(shape.lane)) {
    return reader.Bad(fmt::format("lane type {} in a gear frame", static_cast<int>(shape.lane)));
  }
  std::span<const std::byte> frame;
  VARVE_RETURN_IF_ERROR(reader.Take("gear frame", reader.left(), frame));
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::byte> rows,
                         GearDecode(frame, WordBytes(shape), shape.Bytes()));
  if (rows.size() != shape.Bytes()) {
    return reader.Bad(fmt::format("{} bytes in a gear frame, not {}", rows.size(), shape.Bytes()));
  }
  const size_t row_bytes = shape.Bytes() / static_cast<size_t>(shape.num_rows);
  for (int row = 0; row < shape.num_rows; ++row)
    ScatterRow(shape, rows.data() + static_cast<size_t>(row) * row_bytes, row, out);
  return Status();
}

}  // namespace varve::store
