// Codebooks that code random rows about as well as trained ones, for tests of rungs and caches:
// any sizes, grains and rotations, the same for a seed. codebook_testing.h has those that are only
// read and written. Not part of the library.

#ifndef VARVE_RUNGS_PQ_PQ_TESTING_H_
#define VARVE_RUNGS_PQ_PQ_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "rungs/pq/codebook_limits.h"
#include "rungs/pq/pq_methods.h"
#include "rungs/pq/pq_name.h"
#include "rungs/pq/pq_rung.h"
#include "varve/cache.h"
#include "varve/codebook.h"

namespace varve {

struct PqTableOptions {
  Part part = Part::kKey;
  PqSize size;
  CodebookGrain grain = CodebookGrain::kHead;
  bool rotated = false;
};

// A sum of uniform numbers, variance 1.
inline float PqGaussian(SplitMix64* random) {
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(random->Next() >> 40) * 0x1p-24f;
  return sum;
}

// Where random centroids reach to, in standard deviations of theirs.
inline constexpr float kPqReach = 4.0f;

// Channels of a row of length 1 have variance 1 / dim. Centroids are drawn from the wider
// distribution that is best for many codes in sub_dim channels: its variance is
// (sub_dim + 2) / sub_dim times as large.
inline float PqSpread(int dim, int sub_dim) {
  return std::sqrt(static_cast<float>(sub_dim + 2) / static_cast<float>(sub_dim * dim));
}

// A mirror at a random plane for every group: orthonormal, all of its entries in use.
inline void AddMirrors(CodebookTable* table, int groups, SplitMix64* random) {
  const size_t dim = static_cast<size_t>(table->dim);
  std::vector<float> normal(dim);
  for (int group = 0; group < groups; ++group) {
    float length = 0;
    for (float& x : normal) {
      x = PqGaussian(random);
      length += x * x;
    }
    for (size_t i = 0; i < dim; ++i) {
      for (size_t j = 0; j < dim; ++j)
        table->rotation.push_back(
            F32ToF16((i == j ? 1.0f : 0.0f) - 2.0f * normal[i] * normal[j] / length));
    }
  }
}

inline CodebookTable MakePqTable(const PqTableOptions& options, int dim, int groups,
                                 uint64_t seed) {
  SplitMix64 random(seed);
  CodebookTable table;
  table.part = options.part;
  table.dim = dim;
  table.num_subspaces = options.size.subspaces;
  table.bits = options.size.bits;
  table.grain = options.grain;
  const float spread = PqSpread(dim, table.sub_dim());
  for (uint64_t i = 0; i < NumScales(table, groups); ++i) {
    // Not all alike: a scale of the wrong sub-space must show.
    const float wider = 1.0f + 0.25f * static_cast<float>(i % 3);
    table.scales.push_back(wider * kPqReach * spread / 127.0f);
  }
  const uint64_t per_subspace = static_cast<uint64_t>(table.sub_dim()) << table.bits;
  table.centroids.resize(NumCentroidBytes(table, groups));
  for (uint64_t i = 0; i < table.centroids.size(); ++i) {
    const float level = spread * PqGaussian(&random) / table.scales[i / per_subspace];
    table.centroids[i] =
        static_cast<uint8_t>(std::clamp(std::nearbyint(level) + 128.0f, 1.0f, 255.0f));
  }
  if (options.rotated) AddMirrors(&table, groups, &random);
  return table;
}

// Fits caches of that shape and passes CheckCodebook.
inline Codebook MakePqCodebook(const CacheShape& shape, const std::vector<PqTableOptions>& tables,
                               uint64_t seed = 1) {
  Codebook codebook;
  codebook.num_layers = shape.num_layers;
  codebook.num_kv_heads = shape.num_kv_heads;
  codebook.model_name = "noise";
  codebook.trained_on = "nothing";
  for (const PqTableOptions& options : tables) {
    const int dim = options.part == Part::kKey ? shape.key_dim : shape.value_dim;
    codebook.tables.push_back(MakePqTable(options, dim, codebook.NumGroups(options.grain),
                                          seed * 1000 + codebook.tables.size()));
  }
  return codebook;
}

inline std::shared_ptr<const Codebook> SharePqCodebook(const CacheShape& shape,
                                                       const std::vector<PqTableOptions>& tables,
                                                       uint64_t seed = 1) {
  return std::make_shared<const Codebook>(MakePqCodebook(shape, tables, seed));
}

// With the kernels that are active now.
inline PqRung MakePqRung(const PqSize& size, std::shared_ptr<const Codebook> codebook) {
  return PqRung(PqDescriptorOf(size), {&ActiveKernels(), std::move(codebook)});
}

// Forces methods until the end of the scope.
class ScopedPqMethods {
 public:
  explicit ScopedPqMethods(const PqMethods& methods) { SetPqMethods(methods); }
  ~ScopedPqMethods() { SetPqMethods({}); }
  ScopedPqMethods(const ScopedPqMethods&) = delete;
  ScopedPqMethods& operator=(const ScopedPqMethods&) = delete;
};

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_PQ_TESTING_H_
