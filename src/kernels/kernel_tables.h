// Where the kernel tables of the instruction sets come from; private to src/kernels.

#ifndef VARVE_KERNELS_KERNEL_TABLES_H_
#define VARVE_KERNELS_KERNEL_TABLES_H_

#include <vector>

#include "kernels/kernels.h"

namespace varve {

const Kernels& ScalarKernels();

// The Highway tables that this machine can run, best last; empty where Highway has none.
std::vector<const Kernels*> SimdKernels();

// Copies a block of 32 values with NaN replaced by 0 and the rest clamped to what an f16 scale can
// express; returns how many values changed.
uint64_t SanitizeBlock(BlockType type, const float* values, float* out);

}  // namespace varve

#endif  // VARVE_KERNELS_KERNEL_TABLES_H_
