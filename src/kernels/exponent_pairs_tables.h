// One table of pair decoders per instruction set; private to src/kernels.

#ifndef VARVE_KERNELS_EXPONENT_PAIRS_TABLES_H_
#define VARVE_KERNELS_EXPONENT_PAIRS_TABLES_H_

#include <vector>

#include "kernels/exponent_pairs.h"

namespace varve {

// The specification; takes every shape.
bool DecodePairsScalar(const PairDecodeArgs& args);

// Best last, named as those of SimdKernels().
std::vector<const PairKernels*> SimdPairKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_EXPONENT_PAIRS_TABLES_H_
