#include <cstring>

#include <fmt/format.h>

#include "store/exponent_coder.h"
#include "store/pack_modes.h"

namespace varve::store {
namespace {

size_t RowBytes(const PartShape& shape) {
  return shape.Bytes() / static_cast<size_t>(shape.num_rows);
}

}  // namespace

void AppendLiteralRows(const PartShape& shape, std::span<const std::byte> rows,
                       const Dictionary* dictionary, std::vector<std::byte>& out) {
  const size_t row_bytes = RowBytes(shape);
  const size_t num_rows = rows.size() / row_bytes;
  const size_t even = num_rows / 2 * 2;
  const size_t flag_at = out.size();
  out.push_back(std::byte{0});
  bool pairs = false;
  if (even > 0 && dictionary != nullptr) {
    const PartShape literal = RowPartShape(shape, even);
    std::vector<std::byte> strips(literal.Bytes());
    for (size_t i = 0; i < even; ++i) {
      ScatterRow(literal, rows.data() + i * row_bytes, static_cast<int>(i), {strips, 0});
    }
    if (num_rows > even) AppendBytes(out, rows.last(row_bytes));
    pairs = AppendPairs({literal, strips.data()}, dictionary, strips.size(), out);
    if (!pairs) out.resize(flag_at + 1);
  }
  out[flag_at] = static_cast<std::byte>(pairs ? 1 : 0);
  if (!pairs) AppendBytes(out, rows);
}

Status ReadLiteralRows(ByteReader& reader, const PartShape& shape, size_t num_rows,
                       const Dictionary* dictionary, std::vector<std::byte>& rows) {
  const size_t row_bytes = RowBytes(shape);
  uint8_t pairs = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("literal_pairs", pairs));
  if (pairs > 1) return reader.Bad(fmt::format("literal_pairs {} > 1", pairs));
  // Rows of pairs, then those that are stored as they are.
  const size_t even = pairs == 1 ? num_rows / 2 * 2 : 0;
  std::span<const std::byte> raw;
  VARVE_RETURN_IF_ERROR(reader.Take("literals", (num_rows - even) * row_bytes, raw));
  rows.resize(num_rows * row_bytes);
  if (even > 0) {
    const PartShape literal = RowPartShape(shape, even);
    std::vector<std::byte> strips(literal.Bytes());
    VARVE_RETURN_IF_ERROR(ReadPairs(reader, literal, dictionary, {strips, 0}));
    for (size_t i = 0; i < even; ++i) {
      GatherRow({literal, strips.data()}, static_cast<int>(i), rows.data() + i * row_bytes);
    }
  } else {
    if (pairs == 1) return reader.Bad("literal_pairs 1 without two literals");
    VARVE_RETURN_IF_ERROR(reader.Finish());
  }
  if (!raw.empty()) std::memcpy(rows.data() + even * row_bytes, raw.data(), raw.size());
  return Status();
}

}  // namespace varve::store
