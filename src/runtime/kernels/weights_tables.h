// Where the weight tables of the instruction sets come from; private to src/kernels.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_

#include <vector>

#include "runtime/kernels/weights.h"

namespace varve {

const WeightKernels& ScalarWeightKernels();

// The Highway tables that this machine can run, best last, named as those of SimdKernels().
std::vector<const WeightKernels*> SimdWeightKernels();

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_
