#include "rungs/block/block_rung.h"

#include <cstring>
#include <vector>

#include "base/half.h"
#include "rungs/rotation.h"

namespace varve {

uint64_t BlockRung::Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                           std::byte* strip) const {
  const size_t count = static_cast<size_t>(num_rows) * shape.dim;
  const size_t blocks = count / kBlockValues;
  std::vector<uint16_t> scales(blocks);
  std::vector<uint8_t> codes(blocks * BlockCodeBytes(type_));
  std::vector<float> rotated;
  uint64_t replaced = 0;
  if (rotated_) {
    rotated.assign(rows, rows + count);
    replaced = ReplaceBeyondF16(rotated.data(), count);
    RotateRows(kernels(), rotated.data(), num_rows, shape.dim);
    rows = rotated.data();
  }
  replaced +=
      kernels().quantize_blocks[static_cast<int>(type_)](rows, blocks, scales.data(), codes.data());
  PackBlockStrip(type_, part, shape, scales.data(), codes.data(), num_rows, strip);
  return replaced;
}

void BlockRung::Decode(Part part, const StripShape& shape, const std::byte* strip, int first,
                       int count, float* rows) const {
  const size_t blocks = static_cast<size_t>(count) * shape.dim / kBlockValues;
  std::vector<uint16_t> scales(blocks);
  std::vector<uint8_t> codes(blocks * BlockCodeBytes(type_));
  UnpackBlockStrip(type_, part, shape, strip, first, count, scales.data(), codes.data());
  for (size_t b = 0; b < blocks; ++b) {
    const float scale = F16ToF32(scales[b]);
    const uint8_t* code = &codes[b * BlockCodeBytes(type_)];
    float* out = rows + b * kBlockValues;
    for (int i = 0; i < kBlockValues; ++i) {
      if (type_ == BlockType::kQ8) {
        out[i] = static_cast<float>(static_cast<int8_t>(code[i])) * scale;
      } else {
        out[i] = static_cast<float>((i < 16 ? code[i] & 15 : code[i - 16] >> 4) - 8) * scale;
      }
    }
  }
  if (rotated_) UnrotateRows(kernels(), rows, count, shape.dim);
}

size_t BlockRung::PreparedRowBytes(const StripShape& shape, int) const {
  return BlockQueryBytes(shape.dim);
}

void BlockRung::PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                             std::byte* prepared) const {
  float row[kMaxDim];
  for (int i = 0; i < num_rows; ++i) {
    const float* query = queries + static_cast<size_t>(i) * shape.dim;
    if (rotated_) {
      std::memcpy(row, query, shape.dim * sizeof(float));
      RotateRows(kernels(), row, 1, shape.dim);
      query = row;
    }
    kernels().prepare_block_query(query, shape.dim, prepared + i * BlockQueryBytes(shape.dim));
  }
}

void BlockRung::Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
                       int num_rows, int num_tokens, float* scores, size_t scores_stride,
                       ReadAhead* ahead) const {
  kernels().key_scores_block[static_cast<int>(type_)]({strip, shape.dim, shape.page_tokens,
                                                       num_tokens, prepared, num_rows, scores,
                                                       scores_stride, ahead});
}

void BlockRung::AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                              size_t weights_stride, const float* weight_sum, int num_rows,
                              float* accumulators, ReadAhead* ahead) const {
  for (const ValuePage& page : pages) {
    kernels().add_values_block[static_cast<int>(type_)](
        {page.strip, shape.dim, shape.page_tokens, page.first, page.count, page.weights,
         weights_stride, weight_sum, num_rows, accumulators, ahead});
  }
}

void BlockRung::FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                             float* output) const {
  if (rotated_) return AddUnrotatedRows(kernels(), accumulators, num_rows, shape.dim, output);
  kernels().add_scaled(output, accumulators, static_cast<size_t>(num_rows) * shape.dim, 1.0f);
}

}  // namespace varve
