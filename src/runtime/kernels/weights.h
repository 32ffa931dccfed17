// Weights of linear layers as model files store them, and products with them.
//
// A WeightMatrix is a view of stored bytes, usually of a mapped file: nothing here copies or owns
// it. Rows are output features, columns input features; each row is a whole number of blocks. The
// block formats are ggml's, byte for byte, little-endian.
//
// Two ways to multiply, one meaning, y = W x (+ bias), with sums in f32:
//  - few tokens (decode): each stored row is read once, decoded in registers and used for all
//    tokens. Weights that are integers take activations of 16 bits (rounded_input.h), floats take
//    f32;
//  - many tokens (prefill): tiles of rows are decoded into a worker's scratch and multiplied there,
//    as floats or as integers (linear.h).
// Results depend on the instruction set and on which of the two ways was taken (within rounding),
// never on the number of threads.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/kernels/integer_tile.h"
#include "runtime/kernels/rounded_input.h"

namespace varve {

// NOLINTBEGIN(readability-identifier-naming): the names of the formats have the underscore.
enum class WeightType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
  kQ2K,
  kQ3K,
  kIQ4_NL,
  kIQ4_XS,
};
// NOLINTEND(readability-identifier-naming)
inline constexpr int kNumWeightTypes = 15;

struct WeightTypeInfo {
  const char* name;  // "Q4_K", as ggml writes it
  int block_values;  // columns per block: 1, 32 or 256
  int block_bytes;
};
const WeightTypeInfo& InfoOf(WeightType type);

struct WeightMatrix {
  WeightType type = WeightType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;  // a multiple of block_values
  const std::byte* data = nullptr;
  const std::byte* woven = nullptr;  // the rows once more, as woven_rows.h has them; or null

  size_t row_bytes() const {
    const WeightTypeInfo& info = InfoOf(type);
    return static_cast<size_t>(cols / info.block_values) * info.block_bytes;
  }
  size_t bytes() const { return row_bytes() * static_cast<size_t>(rows); }
  const std::byte* row(int64_t index) const { return data + index * row_bytes(); }
};

// Whether the weights are integers with scales, not floats.
constexpr bool IsInteger(WeightType type) { return type >= WeightType::kQ8_0; }

// Most tokens that one call of multiply_rows or multiply_rounded takes.
inline constexpr int kMaxRowTokens = 4;

// Products with activations as integers. Entries by type are null for floats.
struct RoundedKernels {
  const char* name;
  // x as rounded_input.h says, in blocks of 32 or 256 values that divide `count`. The same bits in
  // every table.
  void (*round_input)(const float* values, int64_t count, int block, int16_t* codes, float* scales,
                      float* sums);
  // out[t * out_stride + r] = dot(row begin + r, inputs[t]) for rows [begin, end) and tokens
  // t < num_tokens <= kMaxRowTokens, with inputs rounded in blocks of block_values. Products within
  // a block are exact integers.
  void (*multiply_rounded[kNumWeightTypes])(const WeightMatrix& matrix, int64_t begin, int64_t end,
                                            const RoundedInput* inputs, int num_tokens, float* out,
                                            ptrdiff_t out_stride);
  // The same for whole bands of matrix.woven: begin and end are multiples of kBandRows. The sums
  // are added in another order. Null where rows as they are stored are as fast.
  void (*multiply_woven[kNumWeightTypes])(const WeightMatrix& matrix, int64_t begin, int64_t end,
                                          const RoundedInput* inputs, int num_tokens, float* out,
                                          ptrdiff_t out_stride);
  // `count` values of one row, whole blocks, as an IntegerTile has them. `offsets` is written by
  // the types that have them (HasOffsets). The same bits in every table.
  void (*decode_integers[kNumWeightTypes])(const std::byte* blocks, int64_t count, int16_t* values,
                                           float* scales, float* offsets);
  // One group of num_tokens <= kPackedTokens tokens, `stride` floats apart, as PackedInputs has
  // them. The same bits in every table.
  void (*pack_inputs)(const float* values, ptrdiff_t stride, int num_tokens, int64_t cols,
                      int block, int16_t* codes, float* scales, float* sums, float* half_sums);
  // out[t * out_stride + r] = dot(row r, token t) for all rows and tokens. sums is scratch of
  // [rows, kIntegerTokens], aligned as everything in PackedInputs is, to 64 bytes.
  void (*multiply_integers)(const IntegerTile& tile, const PackedInputs& inputs, float* sums,
                            float* out, ptrdiff_t out_stride);
};

// Whether a row is scale * integer + offset, not scale * integer.
bool HasOffsets(WeightType type);
// IntegerTile::offset_run of a type that has them.
int OffsetRun(WeightType type);
// IntegerTile::span of a type of integers.
int IntegerSpan(WeightType type);

// One table per instruction set, with the names and the choice of kernels.h.
struct WeightKernels {
  const char* name;
  // Decodes `count` values (a multiple of block_values) of one row, exactly as the format says.
  void (*decode[kNumWeightTypes])(const std::byte* blocks, int64_t count, float* out);
  // As multiply_rounded, with inputs [matrix.cols] of f32; null for integers.
  void (*multiply_rows[kNumWeightTypes])(const WeightMatrix& matrix, int64_t begin, int64_t end,
                                         const float* const* inputs, int num_tokens, float* out,
                                         ptrdiff_t out_stride);
  const RoundedKernels* rounded;  // of the same instruction set
};

// The table that belongs to ActiveKernels().
const WeightKernels& ActiveWeightKernels();
// All tables of this machine, scalar first.
std::span<const WeightKernels* const> AvailableWeightKernels();

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_H_
