#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqPairsKernel128() { return MakePqPairsKernel<12>(); }

}  // namespace varve::cuda
