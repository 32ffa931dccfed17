#include "store/literal_rows.h"

#include <cstring>

#include <fmt/format.h>

#include "store/float_bits.h"
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

Status LiteralRows::Read(ByteReader& reader, const PartShape& shape, size_t num_rows,
                         const Dictionary* dictionary) {
  row_bytes_ = RowBytes(shape);
  value_bytes_ = LaneBytes(shape.lane);
  uint8_t pairs = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("literal_pairs", pairs));
  if (pairs > 1) return reader.Bad(fmt::format("literal_pairs {} > 1", pairs));
  // Rows of pairs, then those that are stored as they are.
  const size_t even = pairs == 1 ? num_rows / 2 * 2 : 0;
  shape_ = RowPartShape(shape, even);
  run_ = ChannelRun(shape_);
  std::span<const std::byte> raw;
  VARVE_RETURN_IF_ERROR(reader.Take("literals", (num_rows - even) * row_bytes_, raw));
  const size_t pair_bytes = even * row_bytes_;
  rows_ = std::make_unique_for_overwrite<std::byte[]>(num_rows * row_bytes_);
  if (!raw.empty()) std::memcpy(rows_.get() + pair_bytes, raw.data(), raw.size());
  if (even == 0) {
    if (pairs == 1) return reader.Bad("literal_pairs 1 without two literals");
    return reader.Finish();
  }
  return ReadPairs(reader, shape_, dictionary, {{rows_.get(), pair_bytes}, 0});
}

const std::byte* LiteralRows::At(size_t row, int head, int channel) const {
  const size_t even = static_cast<size_t>(shape_.num_rows);
  if (row < even) {
    return rows_.get() + static_cast<size_t>(head) * shape_.StripBytes() +
           FloatOffset(shape_, static_cast<int>(row), channel);
  }
  const size_t element = static_cast<size_t>(head) * static_cast<size_t>(shape_.head_dim) +
                         static_cast<size_t>(channel);
  return rows_.get() + row * row_bytes_ + element * value_bytes_;
}

void LiteralRows::Copy(size_t row, std::byte* out) const {
  const size_t bytes = static_cast<size_t>(run_) * value_bytes_;
  for (int head = 0; head < shape_.num_heads; ++head) {
    for (int channel = 0; channel < shape_.head_dim; channel += run_, out += bytes) {
      std::memcpy(out, At(row, head, channel), bytes);
    }
  }
}

}  // namespace varve::store
