#include "rungs/float/float_rung.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace varve {
namespace {

// Index, in values, of (token, d) in a strip; layouts in kernels().h.
size_t KeyIndex(const StripShape& shape, int token, int d) {
  return (static_cast<size_t>(token / kTileTokens) * shape.dim + d) * kTileTokens +
         token % kTileTokens;
}

size_t ValueIndex(const StripShape& shape, int token, int d) {
  const int chunk = ValueChunk(shape.dim);
  return (static_cast<size_t>(d / chunk) * shape.page_tokens + token) * chunk + d % chunk;
}

// Copies a row of dim values of type T into a strip.
template <typename T>
void ScatterRow(Part part, const StripShape& shape, int token, const T* row, std::byte* strip) {
  T* out = reinterpret_cast<T*>(strip);
  if (part == Part::kKey) {
    T* at = out + KeyIndex(shape, token, 0);
    for (int d = 0; d < shape.dim; ++d) at[static_cast<size_t>(d) * kTileTokens] = row[d];
  } else {
    const int chunk = ValueChunk(shape.dim);
    for (int d = 0; d < shape.dim; d += chunk) {
      std::memcpy(out + ValueIndex(shape, token, d), row + d, chunk * sizeof(T));
    }
  }
}

// Makes the largest value of its sign of every finite one that has become infinite; returns how
// many there were. Rows hardly ever have one, so the bits of four values are looked at together:
// adding what is missing from infinity to 2^15 sets the top bit of those at or above it, without a
// carry to the next.
uint64_t Saturate(const float* row, int dim, uint16_t infinity, uint16_t* narrow) {
  constexpr uint64_t kEach = 0x0001000100010001u;
  const uint64_t missing = kEach * (0x8000u - infinity);
  uint64_t found = 0;
  for (int d = 0; d < dim; d += 4) {  // dim is a multiple of 16
    uint64_t bits;
    std::memcpy(&bits, narrow + d, sizeof(bits));
    found |= (bits & kEach * 0x7FFFu) + missing;
  }
  if ((found & kEach * 0x8000u) == 0) return 0;
  uint64_t count = 0;
  for (int d = 0; d < dim; ++d) {
    if (!Overflowed(row[d], narrow[d], infinity)) continue;
    --narrow[d];
    ++count;
  }
  return count;
}

}  // namespace

uint64_t FloatRung::Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                           std::byte* strip) const {
  if (num_rows < shape.page_tokens) std::memset(strip, 0, StripBytes(part, shape));
  return WriteRows(part, shape, strip, 0, num_rows, rows, shape.dim);
}

uint64_t FloatRung::WriteRows(Part part, const StripShape& shape, std::byte* strip, int first,
                              int count, const float* rows, ptrdiff_t row_stride) const {
  uint16_t narrow[kMaxDim];
  uint64_t replaced = 0;
  for (int i = 0; i < count; ++i) {
    const float* row = rows + i * row_stride;
    switch (type_) {
      case FloatType::kF32:
        ScatterRow(part, shape, first + i, row, strip);
        continue;
      case FloatType::kF16:
        kernels().narrow_f16(row, shape.dim, narrow);
        replaced += Saturate(row, shape.dim, kF16Infinity, narrow);
        break;
      case FloatType::kBF16:
        kernels().narrow_bf16(row, shape.dim, narrow);
        replaced += Saturate(row, shape.dim, kBF16Infinity, narrow);
        break;
    }
    ScatterRow(part, shape, first + i, narrow, strip);
  }
  return replaced;
}

void FloatRung::Decode(Part part, const StripShape& shape, const std::byte* strip, int first,
                       int count, float* rows) const {
  // Runs of values that lie together in the strip: 16 tokens of a channel (K), a chunk of channels
  // of a token (V).
  const auto load = [&](size_t index, size_t n, float* out) {
    if (type_ == FloatType::kF32) {
      std::memcpy(out, strip + 4 * index, 4 * n);
      return;
    }
    const auto* bits = reinterpret_cast<const uint16_t*>(strip) + index;
    type_ == FloatType::kF16 ? kernels().widen_f16(bits, n, out)
                             : kernels().widen_bf16(bits, n, out);
  };
  const size_t dim = static_cast<size_t>(shape.dim);
  if (part == Part::kValue) {
    const int chunk = ValueChunk(shape.dim);
    for (int i = 0; i < count; ++i) {
      for (int d = 0; d < shape.dim; d += chunk)
        load(ValueIndex(shape, first + i, d), chunk, rows + i * dim + d);
    }
    return;
  }
  std::vector<float> tile(dim * kTileTokens);  // [dim][16]
  for (int token = first; token < first + count;) {
    const int in_tile = token % kTileTokens;
    const int n = std::min(kTileTokens - in_tile, first + count - token);
    load(KeyIndex(shape, token - in_tile, 0), tile.size(), tile.data());
    for (int t = 0; t < n; ++t) {
      float* row = rows + (token - first + t) * dim;
      for (size_t d = 0; d < dim; ++d) row[d] = tile[d * kTileTokens + in_tile + t];
    }
    token += n;
  }
}

size_t FloatRung::PreparedRowBytes(const StripShape& shape, int) const {
  return static_cast<size_t>(shape.dim) * sizeof(float);
}

void FloatRung::PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                             std::byte* prepared) const {
  std::memcpy(prepared, queries, num_rows * PreparedRowBytes(shape, num_rows));
}

void FloatRung::Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
                       int num_rows, int num_tokens, float* scores, size_t scores_stride,
                       ReadAhead* ahead) const {
  kernels().key_scores_float[static_cast<int>(type_)]({strip, shape.dim, shape.page_tokens,
                                                       num_tokens, prepared, num_rows, scores,
                                                       scores_stride, ahead});
}

void FloatRung::AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                              size_t weights_stride, const float* weight_sum, int num_rows,
                              float* accumulators, ReadAhead* ahead) const {
  for (const ValuePage& page : pages) {
    kernels().add_values_float[static_cast<int>(type_)](
        {page.strip, shape.dim, shape.page_tokens, page.first, page.count, page.weights,
         weights_stride, weight_sum, num_rows, accumulators, ahead});
  }
}

void FloatRung::FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                             float* output) const {
  kernels().add_scaled(output, accumulators, static_cast<size_t>(num_rows) * shape.dim, 1.0f);
}

}  // namespace varve
