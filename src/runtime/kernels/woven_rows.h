// Rows of integer weights woven together, sixteen at a time: a second form of a WeightMatrix, in
// which a vector holds the same columns of sixteen rows. Products of few tokens then need no sums
// across lanes and a third of the instructions, so that memory is the limit.
//
// A band is 16 rows. For each block of columns (32 or 256, as stored) it has
//   fields   the block's f16 values of 16 rows: scales, then minima where the type has them
//   and for each run of 32 columns
//   scales   of types with blocks of 256, a byte a row: scales and minima of the run (Q4_K, Q5_K),
//            the scales of its two halves (Q6_K), or the scales of the run (IQ4_XS)
//   codes    dwords, one a row: four, five or six, as a code has bits
// Columns come in pairs, as the instruction takes them that multiplies 16-bit pairs: the lower half
// of a dword has even columns, the upper half odd ones, at the same places. A half is filled from
// below.
//   4 bits   dword v: pairs 4v … 4v + 3 of the run
//   5 bits   dword v: pairs 3v … 3v + 2, and bit 15 is bit v of pair 15
//   6 bits   of each half of the run three dwords: pairs 2v and 2v + 1; bits 12 … 15 of the first
//   are the low
//            bits of pair 6, of the second those of pair 7, of the third the high two bits of both
//
// Rows after the last whole band are not woven.

#ifndef VARVE_RUNTIME_KERNELS_WOVEN_ROWS_H_
#define VARVE_RUNTIME_KERNELS_WOVEN_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/weights.h"
#include "varve/executor.h"

namespace varve {

inline constexpr int64_t kBandRows = 16;

// Bytes of the parts above, for one band.
struct WovenForm {
  size_t block;   // columns
  size_t fields;  // per block
  size_t scales;  // per run
  size_t bits;    // of a code

  constexpr size_t run_bytes() const { return scales + bits * 4 * kBandRows; }
  constexpr size_t block_bytes() const { return fields + block / kRoundedRun * run_bytes(); }
};

constexpr WovenForm WovenFormOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
      return {32, 32, 0, 4};
    case WeightType::kQ4_1:
      return {32, 64, 0, 4};
    case WeightType::kQ5_0:
      return {32, 32, 0, 5};
    case WeightType::kQ5_1:
      return {32, 64, 0, 5};
    case WeightType::kQ4K:
      return {256, 64, 32, 4};
    case WeightType::kQ5K:
      return {256, 64, 32, 5};
    case WeightType::kQ6K:
      return {256, 32, 32, 6};
    case WeightType::kIQ4_XS:
      return {256, 32, 16, 4};
    default:
      return {};
  }
}

// Whether the type has a woven form; Q2_K, Q3_K and types of eight bits or more have none.
constexpr bool CanWeave(WeightType type) { return WovenFormOf(type).block != 0; }

// Of one band, and of all; 0 if the type has no woven form.
size_t BandBytes(const WeightMatrix& matrix);
size_t WovenBytes(const WeightMatrix& matrix);

// Rows of a matrix that are in its bands.
constexpr int64_t WovenRows(const WeightMatrix& matrix) {
  return matrix.rows / kBandRows * kBandRows;
}

// Writes WovenBytes(matrix) bytes, on all threads.
void WeaveMatrix(const WeightMatrix& matrix, Executor& executor, std::byte* out);

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WOVEN_ROWS_H_
