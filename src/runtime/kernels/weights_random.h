// Made-up weights of every type, for benchmarks of models that nobody has to download and for
// tests: random codes under scales that give about the wanted spread.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_RANDOM_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/weights.h"

namespace varve {

// `count` values (a multiple of block_values) with mean about 0 and standard deviation about
// `deviation` (0.001 to 1); `out` has their blocks. The same bytes for the same seed everywhere.
void FillRandomWeights(WeightType type, int64_t count, float deviation, uint64_t seed,
                       std::byte* out);

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_RANDOM_H_
