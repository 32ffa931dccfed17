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

namespace varve {

inline constexpr int kTileTokens = 16;
inline constexpr int kBlockValues = 32;    // values that share a scale in q8_0 and q4_0
inline constexpr int kMaxPageTokens = 128;
inline constexpr int kMaxDim = 512;

enum class FloatType : int { kF32 = 0, kF16 = 1, kBF16 = 2 };
enum class BlockType : int { kQ8 = 0, kQ4 = 1 };

constexpr size_t FloatBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }
// Code bytes of a block of 32 values, its f16 scale not counted.
constexpr size_t BlockCodeBytes(BlockType type) { return type == BlockType::kQ8 ? 32 : 16; }
constexpr int ValueChunk(int dim) { return dim % 32 == 0 ? 32 : 16; }

// Bytes that the caller will read next; a kernel fetches them toward the cache while it works.
struct Prefetch {
  const std::byte* address = nullptr;
  size_t bytes = 0;
};

// A query in block form: q ≈ scale[b] * (256 * hi + lo) per block b of 32 values, |hi| <= 127,
// -128 <= lo <= 127. q4_0 uses hi alone, which is q rounded to 8 bits. Layout of one row:
//   f32 scale[dim/32], i32 hi_sum[dim/32], i32 lo_sum[dim/32], i8 hi[dim], i8 lo[dim]
// padded to a multiple of 64 bytes. The sums undo the offset of unsigned codes.
constexpr size_t BlockQueryBytes(int dim) {
  return (static_cast<size_t>(dim) / kBlockValues * 12 + 2 * static_cast<size_t>(dim) + 63) / 64 * 64;
}

struct KeyScoresArgs {
  const std::byte* strip;
  int dim;
  int page_tokens;
  int num_tokens;          // scores wanted; the kernel may write up to the next multiple of 16
  const std::byte* query;  // float: f32 [num_rows, dim]; block: num_rows block queries
  int num_rows;
  float* scores;           // [num_rows, page_tokens]
  Prefetch next;
};

struct AddValuesArgs {
  const std::byte* strip;
  int dim;
  int page_tokens;
  int first;                // float: tokens [first, first + count); block reads the whole page
  int count;
  const float* weights;     // [num_rows, page_tokens], >= 0, zero where not wanted
  const float* weight_max;  // [num_rows] >= every weight of the row
  int num_rows;
  float* accumulators;      // [num_rows, dim], added to
  Prefetch next;
};

struct SoftmaxArgs {
  float* scores;      // [num_rows, page_tokens]; becomes exp(score - running_max), 0 from num_tokens on
  int num_rows;
  int page_tokens;
  int num_tokens;
  float* running_max;  // [num_rows] in and out; -inf before the first page
  float* page_sum;     // [num_rows] sum of the new weights
  float* rescale;      // [num_rows] factor for what was accumulated before: exp(old max - new max)
  float* weight_max;   // [num_rows] largest new weight
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
  uint64_t (*quantize_blocks[2])(const float* values, size_t count, uint16_t* scales, uint8_t* codes);

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

  // values[i] *= factor.
  void (*scale)(float* values, size_t count, float factor);
  // into[i] += factor * from[i].
  void (*add_scaled)(float* into, const float* from, size_t count, float factor);
};

// The table in use: the best that the machine has, or the one that VARVE_ISA names (read once).
const Kernels& ActiveKernels();

// Every table that this machine can run, scalar first, best last.
std::span<const Kernels* const> AvailableKernels();

// The available table of that name, or null.
const Kernels* FindKernels(std::string_view name);

// Replaces the table in use; for tests and benchmarks. Not while kernels run.
void SetActiveKernels(const Kernels& kernels);

// Empty, or what was wrong with VARVE_ISA ("VARVE_ISA=foo: …"); the best table is used then.
std::string_view KernelSelectionWarning();

}  // namespace varve

#endif  // VARVE_KERNELS_KERNELS_H_
