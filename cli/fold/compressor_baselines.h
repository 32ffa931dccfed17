// What a trained compressor is compared with: compressors of the same shape that have learned
// nothing.

#ifndef VARVE_CLI_FOLD_COMPRESSOR_BASELINES_H_
#define VARVE_CLI_FOLD_COMPRESSOR_BASELINES_H_

#include <cstdint>

#include "varve/compressor.h"

namespace varve {

// The mean of the rows, as networks: the first matrix takes it, biases of 256 hold the ReLUs open
// and are taken off at the end, so that it is exact to 3e-5 unless a mean is below -256.
Compressor MeanPoolingLike(const Compressor& like);

// Weights and biases even within 1 / sqrt(inputs): what PyTorch's Linear begins with.
Compressor RandomLike(const Compressor& like, uint64_t seed);

}  // namespace varve

#endif  // VARVE_CLI_FOLD_COMPRESSOR_BASELINES_H_
