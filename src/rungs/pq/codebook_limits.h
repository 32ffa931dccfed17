// Limits of codebooks, and the sizes of a table's arrays. A table's shape must have been checked
// before its sizes are asked for: then they are below 2^42 and nothing overflows.

#ifndef VARVE_RUNGS_PQ_CODEBOOK_LIMITS_H_
#define VARVE_RUNGS_PQ_CODEBOOK_LIMITS_H_

#include <cstdint>

#include "varve/codebook.h"

namespace varve {

inline constexpr int kMaxCodebookLayers = 1024;
inline constexpr int kMaxCodebookHeads = 1024;
inline constexpr int kMaxCodebookTables = 64;
inline constexpr int kMinCodebookDim = 16;
inline constexpr int kMaxCodebookDim = 512;
inline constexpr int kMinCodebookBits = 4;
inline constexpr int kMaxCodebookBits = 12;
inline constexpr int kMaxCodebookNameBytes = 256;
inline constexpr int kMaxTrainedOnBytes = 1024;
// Rows have length 1, so centroids lie within [-1, 1] and scales within 1/127. What is far from
// that is damaged, and squares of it would leave the range of f32.
inline constexpr float kMinCodebookScale = 1e-16f;
inline constexpr float kMaxCodebookScale = 16.0f;
// Of R^T R x, for x of signs.
inline constexpr float kRotationTolerance = 0.02f;

inline uint64_t NumScales(const CodebookTable& table, int groups) {
  return static_cast<uint64_t>(groups) * static_cast<uint64_t>(table.num_subspaces);
}
inline uint64_t NumCentroidBytes(const CodebookTable& table, int groups) {
  return static_cast<uint64_t>(groups) * static_cast<uint64_t>(table.dim) << table.bits;
}
inline uint64_t NumRotationValues(const CodebookTable& table, int groups) {
  return static_cast<uint64_t>(groups) * static_cast<uint64_t>(table.dim) *
         static_cast<uint64_t>(table.dim);
}

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_CODEBOOK_LIMITS_H_
