// Where the weight tables of the instruction sets come from; private to this folder.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_

#include <vector>

#include "runtime/kernels/weights.h"

namespace varve {

// Without `rounded`, which weights.cc fills in.
const WeightKernels& ScalarWeightKernels();
const RoundedKernels& ScalarRoundedKernels();

// The Highway tables that this machine can run, best last, named as those of SimdKernels().
std::vector<const WeightKernels*> SimdWeightKernels();
std::vector<const RoundedKernels*> SimdRoundedKernels();

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_TABLES_H_
