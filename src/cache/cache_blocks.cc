// ggml's blocks in and out of a cache, without loss.
//
// In: the values of a block (an f16 scale times small integers) are exact in f32, and ggml's
// quantizer gives back the same scale and codes for them: the largest code of a block that it wrote
// is ±127 (q8_0) or -8 (q4_0), so the scale is that value divided by 127 or -8 again, without
// rounding. Rows therefore go in as f32, and a page that is sealed in the same format holds the
// bytes that came. Each block is checked to be one of those.
// Out: from a page in the same format its bytes; from a float page what ggml would write.

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "base/half.h"
#include "cache/cache_impl.h"
#include "kernels/kernels.h"
#include "rungs/block/block_strip.h"

namespace varve {
namespace {

struct BlockKind {
  BlockType type;
  const char* name;  // of the rung with these blocks
};

Result<BlockKind> KindOf(const char* call, BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return BlockKind{BlockType::kQ8, "q8_0"};
    case BlockFormat::kQ4_0:
      return BlockKind{BlockType::kQ4, "q4_0"};
  }
  return InvalidArgument(
      fmt::format("{}: format {} is not 0 (q8_0) or 1 (q4_0)", call, static_cast<int>(format)));
}

Status CheckBlockDim(const char* call, const char* field, int dim) {
  if (dim % kBlockValues == 0) return Status();
  return InvalidArgument(
      fmt::format("{}: {} {} is not a multiple of {}", call, field, dim, kBlockValues));
}

uint16_t ScaleBits(const std::byte* block) {
  uint16_t bits;
  std::memcpy(&bits, block, sizeof(bits));
  return bits;
}

bool IsZeroScale(uint16_t bits) { return (bits & 0x7FFF) == 0; }

void DecodeBlock(BlockType type, const std::byte* block, float* out) {
  const float scale = F16ToF32(ScaleBits(block));
  const auto* codes = reinterpret_cast<const uint8_t*>(block + 2);
  for (int i = 0; i < kBlockValues; ++i) {
    if (type == BlockType::kQ8) {
      out[i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
    } else {
      const int nibble = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
      out[i] = scale * static_cast<float>(nibble - 8);
    }
  }
}

// Rows of one KV head as blocks, `count` of them, from f32 values.
void QuantizeRows(const Kernels& kernels, BlockType type, const float* values, size_t count,
                  std::byte* out) {
  const size_t code_bytes = BlockCodeBytes(type);
  std::vector<uint16_t> scales(count);
  std::vector<uint8_t> codes(count * code_bytes);
  kernels.quantize_blocks[static_cast<int>(type)](values, count, scales.data(), codes.data());
  for (size_t b = 0; b < count; ++b, out += GgmlBlockBytes(type)) {
    std::memcpy(out, &scales[b], 2);
    std::memcpy(out + 2, &codes[b * code_bytes], code_bytes);
  }
}

// The first block of a token's row that ggml's quantizer does not give for its own values, or -1.
int FirstForeignBlock(const Kernels& kernels, BlockType type, const std::byte* row,
                      const float* values, int blocks, std::vector<std::byte>* again) {
  const size_t block_bytes = GgmlBlockBytes(type);
  again->resize(static_cast<size_t>(blocks) * block_bytes);
  QuantizeRows(kernels, type, values, static_cast<size_t>(blocks), again->data());
  for (int b = 0; b < blocks; ++b) {
    const size_t at = static_cast<size_t>(b) * block_bytes;
    if (IsZeroScale(ScaleBits(row + at))) continue;
    if (std::memcmp(row + at, again->data() + at, block_bytes) != 0) return b;
  }
  return -1;
}

// The first `rows` rows of a strip as blocks: its own, or those of its values.
void StripBlocks(const Kernels& kernels, const BlockKind& kind, const Rung& rung, Part part,
                 const StripShape& shape, const std::byte* strip, int rows, std::byte* out) {
  if (rung.name() == kind.name) return ExportGgmlRows(kind.type, part, shape, strip, 0, rows, out);
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(shape.dim));
  rung.Decode(part, shape, strip, 0, rows, values.data());
  QuantizeRows(kernels, kind.type, values.data(), values.size() / kBlockValues, out);
}

}  // namespace

Result<RowsView> CacheImpl::DecodeBlocks(int layer, Part part, const BlockRowsView& rows,
                                         std::vector<float>* scratch) const {
  constexpr const char* kCall = "ImportBlocks";
  const bool key = part == Part::kKey;
  const char* field = key ? "keys" : "values";
  const int dim = key ? shape_.key_dim : shape_.value_dim;
  VARVE_ASSIGN_OR_RETURN(const BlockKind kind, KindOf(kCall, rows.format));
  VARVE_RETURN_IF_ERROR(CheckBlockDim(kCall, key ? "key_dim" : "value_dim", dim));
  if (rows.data == nullptr)
    return InvalidArgument(fmt::format("{}: {}.data is null", kCall, field));
  if (rows.num_tokens < 1) {
    return InvalidArgument(fmt::format("{}: {}.num_tokens {} < 1", kCall, field, rows.num_tokens));
  }
  const std::string_view open = layer_plans_[static_cast<size_t>(layer)].open_rung->name();
  if (open != "f32") {
    return FailedPrecondition(
        fmt::format("{}: layer {}: open_rung={} rounds the values of {} blocks; use open_rung=f32",
                    kCall, layer, open, kind.name));
  }
  const int row_blocks = dim / kBlockValues;
  const int blocks = shape_.num_kv_heads * row_blocks;
  const size_t block_bytes = GgmlBlockBytes(kind.type);
  const ptrdiff_t stride =
      rows.token_stride != 0 ? rows.token_stride
                             : static_cast<ptrdiff_t>(blocks) * static_cast<ptrdiff_t>(block_bytes);
  const size_t token_floats = static_cast<size_t>(blocks) * kBlockValues;
  scratch->resize(std::max(scratch->size(), token_floats * static_cast<size_t>(rows.num_tokens)));
  std::vector<std::byte> again;
  for (int token = 0; token < rows.num_tokens; ++token) {
    const std::byte* row = rows.data + token * stride;
    float* values = scratch->data() + static_cast<size_t>(token) * token_floats;
    for (int b = 0; b < blocks; ++b) {
      DecodeBlock(kind.type, row + static_cast<size_t>(b) * block_bytes, values + b * kBlockValues);
    }
    const int foreign =
        FirstForeignBlock(*services_.kernels, kind.type, row, values, blocks, &again);
    if (foreign < 0) continue;
    return InvalidArgument(fmt::format(
        "{}: {}: token {}, head {}, block {}: ggml's quantizer never writes this {} block", kCall,
        field, token, foreign / row_blocks, foreign % row_blocks, kind.name));
  }
  return RowsView{scratch->data(), rows.num_tokens};
}

Status CacheImpl::ImportBlocks(int layer, SequenceId id, const BlockRowsView& keys,
                               const BlockRowsView& values) {
  if (!step_open_) return FailedPrecondition("ImportBlocks: no step is open");
  return InStep([&]() -> Status {
    if (layer < 0 || layer >= shape_.num_layers) {
      return InvalidArgument(
          fmt::format("ImportBlocks: layer {} is outside 0 … {}", layer, shape_.num_layers - 1));
    }
    VARVE_ASSIGN_OR_RETURN(const RowsView key_rows,
                           DecodeBlocks(layer, Part::kKey, keys, &tensors_.keys));
    VARVE_ASSIGN_OR_RETURN(const RowsView value_rows,
                           DecodeBlocks(layer, Part::kValue, values, &tensors_.values));
    return AppendRows(layer, id, key_rows, value_rows);
  });
}

Result<int64_t> CacheImpl::ExportBlocks(SequenceId id, int layer, Part part, BlockFormat format,
                                        int64_t begin, int64_t end, std::byte* out) const {
  constexpr const char* kCall = "ExportBlocks";
  VARVE_ASSIGN_OR_RETURN(const Sequence* found, Find(id));
  VARVE_ASSIGN_OR_RETURN(const BlockKind kind, KindOf(kCall, format));
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument(
        fmt::format("{}: layer {} is outside 0 … {}", kCall, layer, shape_.num_layers - 1));
  }
  if (begin > end) return InvalidArgument(fmt::format("{}: begin {} > end {}", kCall, begin, end));
  if (out == nullptr) return InvalidArgument("ExportBlocks: out is null");
  const bool key = part == Part::kKey;
  const int dim = key ? shape_.key_dim : shape_.value_dim;
  VARVE_RETURN_IF_ERROR(CheckBlockDim(kCall, key ? "key_dim" : "value_dim", dim));

  const size_t row_bytes = static_cast<size_t>(dim / kBlockValues) * GgmlBlockBytes(kind.type);
  const size_t token_bytes = row_bytes * static_cast<size_t>(shape_.num_kv_heads);
  std::vector<std::byte> blocks(row_bytes * static_cast<size_t>(shape_.page_tokens));
  StripReader reader(shape_);
  int64_t count = 0;
  for (const TableEntry& entry : found->layers[static_cast<size_t>(layer)].entries()) {
    Page* const page_to_read = entry.page.get();
    const Page& page = *entry.page;
    if (entry.EndPosition() <= begin || page.first_position >= end) continue;
    const Rung& rung = page.rung(part);
    if (rung.name() != kind.name && !rung.can_append()) {
      return FailedPrecondition(fmt::format(
          "{}: layer {}: the page at position {} is stored as {}, which is not {} or a float rung",
          kCall, layer, page.first_position, rung.name(), kind.name));
    }
    VARVE_RETURN_IF_ERROR(store_.Read({&page_to_read, 1}, executor_));
    int64_t rows = 0;
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      const StripShape shape = store_.ShapeOf(part, layer, head);
      const std::byte* strip = reader.Get(page, part, head);
      if (!reader.status().ok()) return reader.status();
      StripBlocks(*services_.kernels, kind, rung, part, shape, strip, entry.rows, blocks.data());
      rows = 0;
      for (int row = 0; row < entry.rows; ++row) {
        const int64_t position = page.RowPosition(row);
        if (!entry.live.Get(row) || position < begin || position >= end) continue;
        std::memcpy(out + static_cast<size_t>(count + rows) * token_bytes +
                        static_cast<size_t>(head) * row_bytes,
                    blocks.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
        ++rows;
      }
    }
    count += rows;
  }
  return count;
}

}  // namespace varve
