#include "rungs/turned/turned_rung.h"

#include <cstring>
#include <vector>

#include "base/half.h"
#include "rungs/rotation.h"

namespace varve {
namespace {

// Takes the mean off the rows as it is stored, mean [dim] f16.
void CentreRows(const Kernels& kernels, float* rows, int num_rows, int dim, std::byte* mean) {
  float sum[kMaxDim] = {};
  for (int row = 0; row < num_rows; ++row)
    kernels.add_scaled(sum, rows + static_cast<size_t>(row) * dim, static_cast<size_t>(dim), 1.0f);
  uint16_t bits[kMaxDim] = {};
  for (int d = 0; d < dim; ++d)
    bits[d] = F32ToF16(num_rows > 0 ? sum[d] / static_cast<float>(num_rows) : 0.0f);
  std::memcpy(mean, bits, 2 * static_cast<size_t>(dim));
  float rounded[kMaxDim];
  kernels.widen_f16(bits, static_cast<size_t>(dim), rounded);
  for (int row = 0; row < num_rows; ++row) {
    float* values = rows + static_cast<size_t>(row) * dim;
    for (int d = 0; d < dim; ++d) values[d] -= rounded[d];
  }
}

const uint8_t* LevelBytes(int bits) {
  return bits == 4   ? kTurnedBytes<4>.data()
         : bits == 3 ? kTurnedBytes<3>.data()
                     : kTurnedBytes<2>.data();
}

}  // namespace

uint64_t TurnedRung::Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                            std::byte* strip) const {
  const size_t count = static_cast<size_t>(num_rows) * shape.dim;
  std::vector<float> turned(rows, rows + count);
  uint64_t replaced = ReplaceBeyondF16(turned.data(), count);
  if (part == Part::kKey) CentreRows(kernels(), turned.data(), num_rows, shape.dim, strip);
  RotateRows(kernels(), turned.data(), num_rows, shape.dim);
  uint16_t scales[kMaxPageTokens] = {};
  std::vector<uint8_t> codes(count);
  replaced += turned_kernels_.quantize[bits_ - kMinTurnedBits](turned.data(), num_rows, shape.dim,
                                                               scales, codes.data());
  std::memcpy(strip + TurnedScalesOffset(part, shape), scales,
              2 * static_cast<size_t>(shape.page_tokens));
  PackTurnedCodes(bits_, part, shape, codes.data(), num_rows, strip);
  return replaced;
}

void TurnedRung::Decode(Part part, const StripShape& shape, const std::byte* strip, int first,
                        int count, float* rows) const {
  const size_t dim = static_cast<size_t>(shape.dim);
  std::vector<uint8_t> codes(static_cast<size_t>(count) * dim);
  UnpackTurnedCodes(bits_, part, shape, strip, first, count, codes.data());
  const uint8_t* bytes = LevelBytes(bits_);
  const std::byte* scales = strip + TurnedScalesOffset(part, shape);
  for (int row = 0; row < count; ++row) {
    uint16_t bits;
    std::memcpy(&bits, scales + 2 * static_cast<size_t>(first + row), 2);
    const float unit = F16ToF32(bits) * kTurnedUnit;
    for (size_t i = row * dim; i < (row + 1) * dim; ++i)
      rows[i] = static_cast<float>(2 * bytes[codes[i]] - kTurnedOffset) * unit;
  }
  UnrotateRows(kernels(), rows, count, shape.dim);
  if (part == Part::kValue) return;
  uint16_t mean[kMaxDim];
  std::memcpy(mean, strip, 2 * dim);
  for (int row = 0; row < count; ++row) {
    for (size_t d = 0; d < dim; ++d) rows[row * dim + d] += F16ToF32(mean[d]);
  }
}

size_t TurnedRung::PreparedRowBytes(const StripShape& shape, int) const {
  return TurnedQueryBytes(shape.dim);
}

void TurnedRung::PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                              std::byte* prepared) const {
  float turned[kMaxDim];
  for (int row = 0; row < num_rows; ++row) {
    const float* query = queries + static_cast<size_t>(row) * shape.dim;
    std::memcpy(turned, query, static_cast<size_t>(shape.dim) * sizeof(float));
    RotateRows(kernels(), turned, 1, shape.dim);
    turned_kernels_.prepare_query(query, turned, shape.dim,
                                  prepared + row * TurnedQueryBytes(shape.dim));
  }
}

void TurnedRung::Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
                        int num_rows, int num_tokens, float* scores, size_t scores_stride,
                        ReadAhead* ahead) const {
  turned_kernels_.key_scores[bits_ - kMinTurnedBits]({strip, shape.dim, shape.page_tokens,
                                                      num_tokens, prepared, num_rows, scores,
                                                      scores_stride, ahead});
}

void TurnedRung::AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                               size_t weights_stride, const float* weight_sum, int num_rows,
                               float* accumulators, ReadAhead* ahead) const {
  for (const ValuePage& page : pages) {
    turned_kernels_.add_values[bits_ - kMinTurnedBits](
        {page.strip, shape.dim, shape.page_tokens, page.first, page.count, page.weights,
         weights_stride, weight_sum, num_rows, accumulators, ahead});
  }
}

void TurnedRung::FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                              float* output) const {
  AddUnrotatedRows(kernels(), accumulators, num_rows, shape.dim, output);
}

}  // namespace varve
