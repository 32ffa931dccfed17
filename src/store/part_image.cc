#include "store/part_image.h"

#include <cstring>

#include <fmt/format.h>

#include "kernels/content_hash.h"
#include "kernels/kernels.h"

namespace varve::store {
namespace {

constexpr size_t ElementBytes(LaneType lane) { return lane == LaneType::kF32 ? 4 : 2; }

Status CheckField(const char* field, int value, int limit) {
  if (value >= 1 && value <= limit) return Status();
  return InvalidArgument(fmt::format("part: {} {} is not in 1 … {}", field, value, limit));
}

Status CheckMultiple(const char* field, int value, int of) {
  if (value % of == 0) return Status();
  return InvalidArgument(fmt::format("part: {} {} is not a multiple of {}", field, value, of));
}

}  // namespace

Status PartShape::Check() const {
  if (lane > LaneType::kBytes) {
    return InvalidArgument(fmt::format("part: lane type {} > 5", static_cast<int>(lane)));
  }
  if (layout > PartLayout::kRows) {
    return InvalidArgument(fmt::format("part: layout {} > 2", static_cast<int>(layout)));
  }
  VARVE_RETURN_IF_ERROR(CheckField("num_heads", num_heads, kMaxPartHeads));
  VARVE_RETURN_IF_ERROR(CheckField("num_rows", num_rows, kMaxPartRows));
  const bool bytes = lane == LaneType::kBytes;
  VARVE_RETURN_IF_ERROR(CheckField("head_dim", head_dim, bytes ? kMaxPartBytes : kMaxPartDim));
  if (bytes) {
    if (layout == PartLayout::kRows) return Status();
    return InvalidArgument(fmt::format("part: lane type 5 has the rows layout only, not {}",
                                       static_cast<int>(layout)));
  }
  if (layout == PartLayout::kRows) {
    if (IsFloat(lane)) return Status();
    return InvalidArgument(
        fmt::format("part: lane type {} has no rows layout", static_cast<int>(lane)));
  }
  VARVE_RETURN_IF_ERROR(CheckMultiple("head_dim", head_dim, IsFloat(lane) ? 16 : kBlockValues));
  const int rows = layout == PartLayout::kKey ? kTileTokens : IsFloat(lane) ? 1 : 4;
  return CheckMultiple("num_rows", num_rows, rows);
}

size_t PartShape::StripBytes() const {
  const size_t values = static_cast<size_t>(num_rows) * static_cast<size_t>(head_dim);
  if (IsFloat(lane)) return values * ElementBytes(lane);
  if (lane == LaneType::kBytes) return values;
  const BlockType type = lane == LaneType::kQ8 ? BlockType::kQ8 : BlockType::kQ4;
  return values / kBlockValues * (2 + BlockCodeBytes(type));
}

Status PartBuffer::Check(const PartShape& shape) const {
  const size_t strip = shape.StripBytes();
  const size_t stride = head_stride != 0 ? head_stride : strip;
  if (stride < strip) {
    return InvalidArgument(fmt::format("part: head_stride {} < strip of {} bytes", stride, strip));
  }
  // Division, not multiplication: the caller's stride may be any number, a product could overflow.
  const size_t heads = static_cast<size_t>(shape.num_heads);
  if (bytes.size() >= strip && (bytes.size() - strip) / stride >= heads - 1) return Status();
  return InvalidArgument(fmt::format("part: {} strips of {} bytes, {} apart, do not fit into {}",
                                     heads, strip, stride, bytes.size()));
}

uint64_t HashPart(const PartView& part) {
  const size_t bytes = part.shape.StripBytes();
  return HashPieces(part.data, bytes, part.head_stride != 0 ? part.head_stride : bytes,
                    static_cast<size_t>(part.shape.num_heads));
}

size_t FloatOffset(const PartShape& shape, int row, int channel) {
  const size_t r = static_cast<size_t>(row), c = static_cast<size_t>(channel);
  const size_t rows = static_cast<size_t>(shape.num_rows),
               dim = static_cast<size_t>(shape.head_dim);
  size_t index = r * dim + c;
  if (shape.layout == PartLayout::kKey) {
    index = (r / kTileTokens * dim + c) * kTileTokens + r % kTileTokens;
  } else if (shape.layout == PartLayout::kValue) {
    const size_t chunk = static_cast<size_t>(ValueChunk(shape.head_dim));
    index = (c / chunk * rows + r) * chunk + c % chunk;
  }
  return index * ElementBytes(shape.lane);
}

int ChannelRun(const PartShape& shape) {
  if (shape.layout == PartLayout::kKey) return 1;
  return shape.layout == PartLayout::kRows ? shape.head_dim : ValueChunk(shape.head_dim);
}

namespace {

// Where the channels of a row lie in a float strip: in runs of so many bytes, so far apart.
struct RowRuns {
  RowRuns(const PartShape& shape, int row)
      : count(static_cast<size_t>(shape.head_dim / ChannelRun(shape))),
        bytes(static_cast<size_t>(ChannelRun(shape)) * ElementBytes(shape.lane)),
        begin(FloatOffset(shape, row, 0)),
        step(count > 1 ? FloatOffset(shape, row, ChannelRun(shape)) - begin : 0) {}
  size_t count, bytes, begin, step;
};

// Most runs have 64 bytes, and there are many: a cache restores rows in every step.
void CopyRun(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 64) {
    std::memcpy(to, from, 64);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

void GatherRow(const PartView& part, int row, std::byte* out) {
  const RowRuns runs(part.shape, row);
  for (int head = 0; head < part.shape.num_heads; ++head) {
    const std::byte* from = part.Strip(head) + runs.begin;
    for (size_t i = 0; i < runs.count; ++i, from += runs.step, out += runs.bytes)
      CopyRun(out, from, runs.bytes);
  }
}

void ScatterRow(const PartShape& shape, const std::byte* row_bytes, int row,
                const PartBuffer& out) {
  const RowRuns runs(shape, row);
  for (int head = 0; head < shape.num_heads; ++head) {
    std::byte* to = out.Strip(shape, head) + runs.begin;
    for (size_t i = 0; i < runs.count; ++i, to += runs.step, row_bytes += runs.bytes)
      CopyRun(to, row_bytes, runs.bytes);
  }
}

void ScatterRows(const PartShape& shape, std::span<const std::byte* const> rows,
                 const PartBuffer& out) {
  if (shape.layout == PartLayout::kKey) {
    for (size_t r = 0; r < rows.size(); ++r) ScatterRow(shape, rows[r], static_cast<int>(r), out);
    return;
  }
  // The runs of all rows lie one after the other.
  const RowRuns runs(shape, 0);
  size_t from = 0;
  for (int head = 0; head < shape.num_heads; ++head) {
    std::byte* to = out.Strip(shape, head);
    for (size_t i = 0; i < runs.count; ++i, from += runs.bytes) {
      for (const std::byte* row : rows) {
        CopyRun(to, row + from, runs.bytes);
        to += runs.bytes;
      }
    }
  }
}

}  // namespace varve::store
