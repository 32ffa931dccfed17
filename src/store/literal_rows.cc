#include "store/literal_rows.h"

#include <cstring>

#include <fmt/format.h>

#include "store/float_bits.h"
#include "store/pack_modes.h"
#include "store/plane_coder.h"

namespace varve::store {
namespace {

size_t RowBytes(const PartShape& shape) {
  return shape.Bytes() / static_cast<size_t>(shape.num_rows);
}

// How rows are stored: `literal_form` of the payload.
enum class LiteralForm : uint8_t { kRaw = 0, kPairs = 1, kPlanes = 2 };

// Rows one below the other, for planes: all heads are one.
FloatPlane RowPlane(const PartShape& shape, size_t num_rows) {
  FloatPlane plane;
  plane.lane = shape.lane;
  plane.layout = PairLayout::kChunks;
  plane.num_heads = 1;
  plane.num_rows = static_cast<int>(num_rows);
  plane.dim = plane.chunk = shape.num_heads * shape.head_dim;
  return plane;
}

bool AppendLiteralPlanes(const PartShape& shape, std::span<const std::byte> rows,
                         std::vector<std::byte>& out) {
  const FloatPlane plane = RowPlane(shape, rows.size() / RowBytes(shape));
  if (plane.num_rows == 0 || !HasPlanes(plane)) return false;
  const size_t before = out.size();
  const SplitElements split = SplitPlane(plane, rows.data(), rows.size());
  const std::vector<uint8_t> bases = FitBases(plane, split);
  AppendBases(bases, out);
  const size_t used = out.size() - before;
  if (used < rows.size() && AppendPlaneStream(plane, split, bases, rows.size() - used, out))
    return true;
  out.resize(before);
  return false;
}

bool AppendLiteralPairs(const PartShape& shape, std::span<const std::byte> rows,
                        const Dictionary& dictionary, std::vector<std::byte>& out) {
  const size_t row_bytes = RowBytes(shape);
  const size_t num_rows = rows.size() / row_bytes;
  const size_t even = num_rows / 2 * 2;
  if (even == 0) return false;
  const size_t before = out.size();
  const PartShape literal = RowPartShape(shape, even);
  std::vector<std::byte> strips(literal.Bytes());
  for (size_t i = 0; i < even; ++i) {
    ScatterRow(literal, rows.data() + i * row_bytes, static_cast<int>(i), {strips, 0});
  }
  if (num_rows > even) AppendBytes(out, rows.last(row_bytes));
  if (AppendPairs({literal, strips.data()}, &dictionary, strips.size(), out)) return true;
  out.resize(before);
  return false;
}

}  // namespace

void AppendLiteralRows(const PartShape& shape, std::span<const std::byte> rows,
                       const Dictionary* dictionary, PackGoal goal, std::vector<std::byte>& out) {
  const size_t form_at = out.size();
  out.push_back(std::byte{0});
  LiteralForm form = LiteralForm::kRaw;
  if (goal == PackGoal::kQuick && AppendLiteralPlanes(shape, rows, out)) {
    form = LiteralForm::kPlanes;
  } else if (dictionary != nullptr && AppendLiteralPairs(shape, rows, *dictionary, out)) {
    form = LiteralForm::kPairs;
  } else {
    AppendBytes(out, rows);
  }
  out[form_at] = static_cast<std::byte>(form);
}

Status LiteralRows::Read(ByteReader& reader, const PartShape& shape, size_t num_rows,
                         const Dictionary* dictionary) {
  row_bytes_ = RowBytes(shape);
  value_bytes_ = LaneBytes(shape.lane);
  uint8_t stored = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("literal_form", stored));
  if (stored > static_cast<uint8_t>(LiteralForm::kPlanes))
    return reader.Bad(fmt::format("literal_form {} > 2", stored));
  const LiteralForm form = static_cast<LiteralForm>(stored);
  // Rows of pairs, then those that lie row by row.
  const size_t even = form == LiteralForm::kPairs ? num_rows / 2 * 2 : 0;
  shape_ = RowPartShape(shape, even);
  run_ = ChannelRun(shape_);
  rows_.Resize(num_rows * row_bytes_);
  if (form == LiteralForm::kPlanes) {
    const FloatPlane plane = RowPlane(shape, num_rows);
    PlaneBases bases;
    VARVE_RETURN_IF_ERROR(ReadBases(reader, plane, bases));
    return ReadPlaneStream(reader, plane, bases.span(), rows_.data(), 0);
  }
  std::span<const std::byte> raw;
  VARVE_RETURN_IF_ERROR(reader.Take("literals", (num_rows - even) * row_bytes_, raw));
  const size_t pair_bytes = even * row_bytes_;
  if (!raw.empty()) std::memcpy(rows_.data() + pair_bytes, raw.data(), raw.size());
  if (even == 0) {
    if (form == LiteralForm::kPairs) return reader.Bad("literal_form 1 without two literals");
    return reader.Finish();
  }
  return ReadPairs(reader, shape_, dictionary, {{rows_.data(), pair_bytes}, 0});
}

const std::byte* LiteralRows::At(size_t row, int head, int channel) const {
  const size_t even = static_cast<size_t>(shape_.num_rows);
  if (row < even) {
    return rows_.data() + static_cast<size_t>(head) * shape_.StripBytes() +
           FloatOffset(shape_, static_cast<int>(row), channel);
  }
  const size_t element = static_cast<size_t>(head) * static_cast<size_t>(shape_.head_dim) +
                         static_cast<size_t>(channel);
  return rows_.data() + row * row_bytes_ + element * value_bytes_;
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
