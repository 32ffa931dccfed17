// The inner loops of product quantization: scores, weighted values and the nearest centroid, on
// strips of codes. Raw pointers and sizes, no knowledge of pages or codebooks.
//
// A row of dim values is `gain * centroid bytes`: channel d of a token belongs to sub-space
// m = d / sub_dim and is scale[m] * gain[token] * byte, where the byte is found in the table of
// channel d under the token's code for m.
//
// Strip (docs/format/pages.md has the picture), transposed so that a sub-space of 64 tokens is one
// vector:
//   gains   [page_tokens] f16, finite, >= 0
//   bits 4 … 7:  low four bits of the codes [ceil(M / 2)][page_tokens]: sub-space 2i in the low
//                half of a byte, 2i + 1 in the high half
//   bits 8 … 12: low eight bits [M][page_tokens]
//   what is left [M][bits - 4 or bits - 8][page_tokens / 8]: one bit of every code, token t in bit
//                t % 8 of byte t / 8
//   zeros up to a multiple of 64 bytes
//
// One table of functions per instruction set, named as those of kernels.h; `scalar` is the
// specification. Pure functions, safe to run at once.

#ifndef VARVE_KERNELS_PQ_KERNELS_H_
#define VARVE_KERNELS_PQ_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/align.h"
#include "kernels/kernels.h"

namespace varve {

inline constexpr int kMinPqBits = 4;
inline constexpr int kMaxPqBits = 12;
inline constexpr int kMaxByteBits = 8;     // codes that byte lookups take
inline constexpr int kMaxValuePages = 16;  // pages of one call of add_values_*

struct PqShape {
  int dim = 0;
  int subspaces = 0;  // M, divides dim
  int bits = 0;       // 4 … 12
  int page_tokens = 0;

  int sub_dim() const { return dim / subspaces; }
  int num_codes() const { return 1 << bits; }
  int base_bits() const { return bits < 8 ? 4 : 8; }
  int num_planes() const { return bits - base_bits(); }
  // Rows of low bits: two sub-spaces share one below 8 bits.
  int base_rows() const { return bits < 8 ? CeilDiv(subspaces, 2) : subspaces; }
  size_t plane_bytes() const { return static_cast<size_t>(page_tokens) / 8; }
  size_t base_offset() const { return 2 * static_cast<size_t>(page_tokens); }
  size_t plane_offset() const {
    return base_offset() + static_cast<size_t>(base_rows()) * static_cast<size_t>(page_tokens);
  }
  // Up to a multiple of 64: the strip behind it is aligned, too.
  size_t strip_bytes() const {
    const size_t planes = static_cast<size_t>(subspaces) * static_cast<size_t>(num_planes());
    return AlignUp(plane_offset() + planes * plane_bytes(), 64);
  }
};

// The centroids of one group.
struct PqCentroids {
  // [dim][num_codes]; byte - 128 is the value
  const uint8_t* bytes = nullptr;
  const float* scales = nullptr;  // [M]
};

// A prepared query, one row:
//   f32 step, i32 offset, u32 has_table, f32 table_step, f32 table_offset, padding to 64 bytes
//   i16 levels[dim], i8 for codes of 4 bits: query * scale of its sub-space = step * level;
//     offset = -128 * sum of levels
//   f32 query[dim]
//   if has_table, query . centroid:
//     4 bits:  u8 low[M][16], u8 high[M][16]: the product less the least of its sub-space is
//              table_step * (low + 128 * high), both below 128; table_offset is the sum of the
//              least
//     more:    f32 table[M][num_codes]
// each padded to a multiple of 64 bytes.
inline constexpr size_t kPqQueryHeaderBytes = 64;
constexpr size_t PqQueryFloatOffset(int dim) {
  return kPqQueryHeaderBytes + AlignUp(2 * static_cast<size_t>(dim), 64);
}
constexpr size_t PqQueryTableOffset(int dim) {
  return PqQueryFloatOffset(dim) + AlignUp(4 * static_cast<size_t>(dim), 64);
}
inline size_t PqTableBytes(const PqShape& shape) {
  const size_t subspaces = static_cast<size_t>(shape.subspaces);
  return shape.bits == 4 ? 32 * subspaces : 4 * subspaces << shape.bits;
}
inline size_t PqQueryBytes(const PqShape& shape, bool with_table) {
  const size_t table = with_table ? AlignUp(PqTableBytes(shape), 64) : 0;
  return PqQueryTableOffset(shape.dim) + table;
}
inline constexpr int kPqTableLevels = 16383;
inline bool HasPqTable(const std::byte* query) { return query[8] != std::byte{0}; }
inline void MarkPqTable(std::byte* query) { query[8] = std::byte{1}; }
// The largest level: sums over dim channels of 255 * level stay below 2^31. Codes of 4 bits miss a
// key by a quarter of its length: 8 bits of the query add nothing to that that could be seen.
constexpr int PqQueryLevels(const PqShape& shape) {
  return shape.bits == 4 ? 127 : shape.dim <= 256 ? 32767 : 16383;
}

struct PqScoresArgs {
  PqShape shape;
  PqCentroids centroids;
  const std::byte* strip;
  int num_tokens;          // scores wanted; the kernel may write up to page_tokens
  const std::byte* query;  // num_rows prepared queries
  size_t query_stride;     // bytes from row to row
  int num_rows;
  float* scores;  // [num_rows], scores_stride floats apart
  size_t scores_stride;
  ReadAhead* ahead = nullptr;
};

struct PqValuePage {
  const std::byte* strip;
  const float* weights;  // [num_rows, page_tokens], >= 0; rows weights_stride apart
};

struct PqValuesArgs {
  PqShape shape;
  PqCentroids centroids;
  std::span<const PqValuePage> pages;  // at most kMaxValuePages
  size_t weights_stride;
  int num_rows;
  float* accumulators;  // [num_rows, dim], added to
  ReadAhead* ahead = nullptr;
};

struct PqKernels {
  const char* name;
  bool pair_dot;  // whether pairs are multiplied and added in one instruction

  // query [dim] f32 and, if with_table, the table; layout above.
  void (*prepare_query)(const PqShape& shape, const PqCentroids& centroids, const float* query,
                        bool with_table, std::byte* out);

  // Scores by looking the bytes of centroids up and multiplying by the query's levels: exact sums
  // of integers, equal for every table of kernels up to the last rounding. They are the decoded dot
  // product to 1e-4 of |query| |key|, with codes of 4 bits to 5e-3 (1e-2 if one channel of the
  // query outshines the others). By bits - 4.
  void (*scores_bytes[5])(const PqScoresArgs&);
  // Scores by M reads of the query's own table per token: of 14-bit integers by byte shuffles for
  // codes of 4 bits, else of f32. To 1e-4, or as f32 is.
  void (*scores_nibbles)(const PqScoresArgs&);
  void (*scores_tables)(const PqScoresArgs&);

  // Values by looking the bytes of centroids up and multiplying by weights as integers, relative to
  // the largest weight * gain, or to a share of their sum if that is less: 254 levels, and as many
  // times that as a token has more. The share is 1 / 16, 1 / 8 up to 6 bits, 1 / 4 for 4. Rounding
  // errors are spread evenly. By bits - 4.
  void (*add_values_bytes[5])(const PqValuesArgs&);
  // Values by adding up the weight of every code and multiplying by the centroids once. Any bits.
  void (*add_values_centroids)(const PqValuesArgs&);

  // For each of num_points points [num_points][sub_dim] (in units of the scale, finite) the code
  // whose centroid is nearest, the lowest of equals. bytes [sub_dim][num_codes], byte - 128.
  // Distances are sums of squares in f32, in the order of channels.
  void (*nearest)(const uint8_t* bytes, int sub_dim, int num_codes, const float* points,
                  int num_points, uint16_t* codes);
};

const PqKernels& ScalarPqKernels();
// The table that goes with `kernels`; scalar where it has none.
const PqKernels& PqKernelsOf(const Kernels& kernels);
// Scalar first, best last.
std::span<const PqKernels* const> AvailablePqKernels();

// Codes of one sub-space of a strip, and back.
void ReadPqCodes(const PqShape& shape, const std::byte* strip, int subspace, uint16_t* codes);
void WritePqCodes(const PqShape& shape, int subspace, const uint16_t* codes, std::byte* strip);
float ReadPqGain(const std::byte* strip, int token);

// level = weight * gain * factor + dither, rounded: 0 … 4064. 0: the row adds nothing. From the
// largest weight * gain of a row in a call of add_values_bytes and their sum.
float PqLevelFactor(int bits, float largest, float sum);

}  // namespace varve

#endif  // VARVE_KERNELS_PQ_KERNELS_H_
