// A codebook for rows that no model made, so that benchmarks of any shape can run pq rungs: trained
// on some of the benchmark's own rows, the same tables for every layer and head, each with a copy
// of its own, as a trained codebook per head has: they compete for the caches just as much.

#ifndef VARVE_CLI_BENCH_SYNTHETIC_CODEBOOK_H_
#define VARVE_CLI_BENCH_SYNTHETIC_CODEBOOK_H_

#include <memory>
#include <span>

#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/executor.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve::cli {

// For the pq rungs that the plan names without codebook=; null if there are none. keys and values
// [rows, dim] of the shape's dims, as many as there are up to kSyntheticRows are used.
inline constexpr size_t kSyntheticRows = 4096;
Result<std::shared_ptr<const Codebook>> SyntheticCodebook(const Plan& plan, const CacheShape& shape,
                                                          std::span<const float> keys,
                                                          std::span<const float> values,
                                                          Executor& executor);

// The same on Gaussian rows.
Result<std::shared_ptr<const Codebook>> GaussianCodebook(const Plan& plan, const CacheShape& shape,
                                                         Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_SYNTHETIC_CODEBOOK_H_
