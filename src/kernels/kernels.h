// The inner loops of attention and encoding: raw pointers and sizes, no knowledge of pages.
//
// One table of functions per instruction set. `scalar` is plain C++ and the specification; the
// others come from one Highway source compiled per target and agree with it within rounding (the
// encoders exactly). Functions are pure and may run concurrently.
//
// Strip layouts (see docs/format/pages.md for pictures):
//   float K   [tiles of 16 tokens][dim][16]            T, so that a vector holds 16 tokens
//   float V   [dim / C][page_tokens][C]                T, C = 32 if it divides dim, else 16
//   block K   scales [tiles][dim/32][16] f16, then codes [tiles][dim/32][dwords][16 tokens][4 B]
//   block V   scales [dim/32][page_tokens] f16, then codes [dim/32][page_tokens/4][lanes][4 tokens]
// q8_0 has 8 dwords a block and 32 lanes, q4_0 4 dwords and 16 lanes of two nibbles (low nibble:
// elements 0-15 of the block, high nibble: 16-31, as in ggml). q8_0 K codes are stored + 128.

#ifndef VARVE_KERNELS_KERNELS_H_
#define VARVE_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/align.h"

namespace varve {

inline constexpr int kTileTokens = 16;
inline constexpr int kBlockValues = 32;  // values that share a scale in q8_0 and q4_0
inline constexpr int kMaxPageTokens = 128;
inline constexpr int kMaxDim = 512;

enum class FloatType : int { kF32 = 0, kF16 = 1, kBF16 = 2 };
enum class BlockType : int { kQ8 = 0, kQ4 = 1 };

constexpr size_t FloatBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }
// Code bytes of a block of 32 values, its f16 scale not counted.
constexpr size_t BlockCodeBytes(BlockType type) { return type == BlockType::kQ8 ? 32 : 16; }
constexpr int ValueChunk(int dim) { return dim % 32 == 0 ? 32 : 16; }

// The bytes that a task will read, in order of use. Kernels fetch them toward the cache while they
// work, at a rate that the caller sets, so that memory is busy in every pass: decode attention is
// bound by it. One thread at a time.
class ReadAhead {
 public:
  // Where the next line comes from. Kernels keep a copy in registers.
  struct Cursor {
    const std::byte* at = nullptr;
    const std::byte* end = nullptr;
    int rate = 0;  // 0: nothing, 1: about as many lines as are read, 2: catch up
  };

  void Clear() {
    ranges_.clear();
    next_ = 0;
    cursor = {};
  }
  void Add(const std::byte* address, size_t bytes) {
    ranges_.emplace_back(address, address + bytes);
  }
  // Moves a cursor to the next range; false if there is none.
  bool Next(Cursor& from) {
    if (next_ == ranges_.size()) return false;
    from.at = ranges_[next_].first;
    from.end = ranges_[next_].second;
    ++next_;
    return true;
  }
  // Takes the last Next back.
  void Back() { --next_; }
  // Ranges that the cursor has entered.
  size_t entered() const { return next_; }

  Cursor cursor;

 private:
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges_;
  size_t next_ = 0;
};

// A query in block form: q ≈ scale[b] * (256 * hi + lo) per block b of 32 values, |hi| <= 127,
// -128 <= lo <= 127. q4_0 uses hi alone, which is q rounded to 8 bits. Layout of one row:
//   f32 scale[dim/32], f32 scale4[dim/32] = 256 * scale,
//   i32 hi_offset8[dim/32], i32 lo_offset8[dim/32], i32 hi_offset4[dim/32], i8 hi[dim], i8 lo[dim],
//   i16 pairs[dim]: 256 * hi + lo, of each four values the first and third, then the second and
//   fourth
// padded to a multiple of 64 bytes. The offsets are -128 and -8 times the sum of a block's codes:
// what the unsigned codes of K add too much.
constexpr size_t BlockQueryBytes(int dim) {
  return AlignUp(static_cast<size_t>(dim) / kBlockValues * 20 + 4 * static_cast<size_t>(dim), 64);
}

struct KeyScoresArgs {
  const std::byte* strip;
  int dim;
  int page_tokens;
  int num_tokens;          // scores wanted; the kernel may write up to the next multiple of 16
  const std::byte* query;  // float: f32 [num_rows, dim]; block: num_rows block queries
  int num_rows;
  float* scores;  // [num_rows], scores_stride floats apart
  size_t scores_stride;
  ReadAhead* ahead = nullptr;
};

struct AddValuesArgs {
  const std::byte* strip;
  int dim;
  int page_tokens;
  int first;  // float: tokens [first, first + count); block reads the whole page
  int count;
  const float* weights;     // [num_rows, page_tokens], >= 0, zero where not wanted
  size_t weights_stride;    // floats from row to row
  const float* weight_sum;  // [num_rows] what the page's weights are a part of: the split's sum
  int num_rows;
  float* accumulators;  // [num_rows, dim], added to
  ReadAhead* ahead = nullptr;
};

// One part of a sum whose parts are relative to maxima of their own: what is there is multiplied by
// `keep`, then `add` times from [count] is added, unless that is null.
struct MergeTerm {
  const float* from;
  float keep;
  float add;
};

struct SoftmaxArgs {
  float* scores;  // [num_rows], stride floats apart; become exp(score - max of the row)
  int num_rows;
  size_t stride;
  int page_tokens;
  int num_pages;    // num_pages * page_tokens columns; hidden ones hold -inf
  float* max;       // [num_rows]
  float* sum;       // [num_rows]
  float* page_sum;  // [num_rows, num_pages], or null
  ReadAhead* ahead = nullptr;
};

// A product of many input rows with a dense matrix.
struct DenseArgs {
  const float* rows;  // [num_rows, cols]
  int64_t num_rows;
  int64_t cols;
  const float* inputs;  // [num_tokens, cols], input_stride floats apart
  ptrdiff_t input_stride;
  int64_t num_tokens;
  float* out;  // [num_tokens, num_rows], out_stride floats apart
  ptrdiff_t out_stride;
};

struct Kernels {
  const char* name;

  // Indexed by FloatType.
  void (*key_scores_float[3])(const KeyScoresArgs&);
  void (*add_values_float[3])(const AddValuesArgs&);
  // Indexed by BlockType.
  void (*key_scores_block[2])(const KeyScoresArgs&);
  void (*add_values_block[2])(const AddValuesArgs&);

  void (*softmax)(const SoftmaxArgs&);

  // f32 [dim] -> one block query (layout above).
  void (*prepare_block_query)(const float* query, int dim, std::byte* out);

  // Quantizes `count` blocks of 32 values by ggml's scalar reference; scales as f16 bits [count],
  // codes [count][BlockCodeBytes] in ggml's order. Returns the number of values replaced: NaN
  // becomes 0, values beyond the range of an f16 scale become that limit.
  uint64_t (*quantize_blocks[2])(const float* values, size_t count, uint16_t* scales,
                                 uint8_t* codes);

  // f32 -> f16 or bf16 bits, round to nearest even.
  void (*narrow_f16)(const float* values, size_t count, uint16_t* out);
  void (*narrow_bf16)(const float* values, size_t count, uint16_t* out);

  // f16 or bf16 bits -> f32, exact.
  void (*widen_f16)(const uint16_t* bits, size_t count, float* out);
  void (*widen_bf16)(const uint16_t* bits, size_t count, float* out);

  // In place on rows [num_rows, dim]: for each aligned run of `block` values (a power of two),
  // the orthonormal Walsh-Hadamard transform.
  void (*hadamard)(float* rows, int num_rows, int dim, int block);

  // mass[i] = page_sum[i] * exp(page_max[i] - log_sum_exp).
  void (*page_mass)(const float* page_max, const float* page_sum, size_t count, float log_sum_exp,
                    float* mass);

  // into [count] takes all terms, one after the other.
  void (*merge_sums)(float* into, size_t count, std::span<const MergeTerm> terms);
  // into[i] += factor * from[i].
  void (*add_scaled)(float* into, const float* from, size_t count, float factor);

  // out[t][r] = dot(rows[r], inputs[t]). A dot product does not depend on its neighbours.
  void (*multiply_dense)(const DenseArgs& args);
};

// The table in use: the best that the machine has, or the one that VARVE_ISA names (read once).
const Kernels& ActiveKernels();

// Every table that this machine can run, scalar first, best last.
std::span<const Kernels* const> AvailableKernels();

// The available table of that name, or null.
const Kernels* FindKernels(std::string_view name);

// Puts another table in use. Not while kernels run.
void SetActiveKernels(const Kernels& kernels);

// Empty, or what was wrong with VARVE_ISA ("VARVE_ISA=foo: …"); the best table is used then.
std::string_view KernelSelectionWarning();

}  // namespace varve

#endif  // VARVE_KERNELS_KERNELS_H_
