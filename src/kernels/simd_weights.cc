#include "kernels/weights_tables.h"

namespace varve {

std::vector<const WeightKernels*> SimdWeightKernels() { return {}; }

}  // namespace varve
