#include "rungs/block/block_rung.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "rungs/block/rotation.h"

namespace varve {
namespace {

// Before a rotation: a NaN must not spread over the whole block, nor may the sums overflow. Beyond
// the range of f16 a value is cut off.
uint64_t ReplaceBeyondF16(float* values, size_t count) {
  constexpr float kLimit = 65504.0f;
  // Almost always there is nothing to do, and this loop has no branch in it.
  uint32_t beyond = 0;
  for (size_t i = 0; i < count; ++i) beyond += std::abs(values[i]) <= kLimit ? 0 : 1;
  uint64_t replaced = 0;
  for (size_t i = 0; beyond > 0 && i < count; ++i) {
    if (std::abs(values[i]) <= kLimit) continue;
    values[i] = std::isnan(values[i]) ? 0.0f : std::copysign(kLimit, values[i]);
    ++replaced;
  }
  return replaced;
}

}  // namespace

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
  const size_t dim = static_cast<size_t>(shape.dim);
  float row[kMaxDim];
  for (int i = 0; i < num_rows; ++i) {
    const float* source = accumulators + i * dim;
    if (rotated_) {
      std::memcpy(row, source, dim * sizeof(float));
      UnrotateRows(kernels(), row, 1, shape.dim);
      source = row;
    }
    kernels().add_scaled(output + i * dim, source, dim, 1.0f);
  }
}

}  // namespace varve
