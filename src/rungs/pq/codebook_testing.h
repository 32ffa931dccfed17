// Small codebooks for tests: random, valid, the same for a seed.

#ifndef VARVE_RUNGS_PQ_CODEBOOK_TESTING_H_
#define VARVE_RUNGS_PQ_CODEBOOK_TESTING_H_

#include <cstdint>

#include "base/half.h"
#include "base/random.h"
#include "rungs/pq/codebook_limits.h"
#include "varve/codebook.h"

namespace varve {

inline CodebookTable RandomCodebookTable(Part part, int dim, int num_subspaces, int bits,
                                         CodebookGrain grain, int groups, uint64_t seed) {
  SplitMix64 random(seed);
  CodebookTable table;
  table.part = part;
  table.dim = dim;
  table.num_subspaces = num_subspaces;
  table.bits = bits;
  table.grain = grain;
  table.scales.resize(NumScales(table, groups));
  for (float& scale : table.scales) {
    scale = 1e-4f + 1e-3f * static_cast<float>(random.Next() >> 40) * 0x1p-24f;
  }
  table.centroids.resize(NumCentroidBytes(table, groups));
  for (uint8_t& byte : table.centroids) byte = static_cast<uint8_t>(1 + random.Next() % 255);
  return table;
}

// A permutation with signs is orthonormal, and exact in f16.
inline void AddSignedPermutation(CodebookTable* table, int groups) {
  const size_t dim = static_cast<size_t>(table->dim);
  table->rotation.assign(static_cast<size_t>(groups) * dim * dim, 0);
  for (size_t g = 0; g < static_cast<size_t>(groups); ++g) {
    for (size_t i = 0; i < dim; ++i) {
      const size_t j = (5 * i + g) % dim;
      table->rotation[(g * dim + i) * dim + j] = F32ToF16((i + g) % 3 == 0 ? -1.0f : 1.0f);
    }
  }
}

// 2 layers of 2 heads: K 8x4 per head, V 4x5 per layer with rotations, V 16x6 per model.
inline Codebook SmallCodebook() {
  Codebook codebook;
  codebook.num_layers = 2;
  codebook.num_kv_heads = 2;
  codebook.model_fingerprint = 0x0123456789ABCDEFu;
  codebook.model_name = "tiny";
  codebook.trained_on = "noise, 3 tokens";
  codebook.tables = {
      RandomCodebookTable(Part::kKey, 16, 8, 4, CodebookGrain::kHead, 4, 1),
      RandomCodebookTable(Part::kValue, 32, 4, 5, CodebookGrain::kLayer, 2, 2),
      RandomCodebookTable(Part::kValue, 32, 16, 6, CodebookGrain::kModel, 1, 3),
  };
  AddSignedPermutation(&codebook.tables[1], 2);
  return codebook;
}

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_CODEBOOK_TESTING_H_
