#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqPairsKernel128(bool few) {
  return few ? MakePqPairsKernel<8>() : MakePqPairsKernel<12>();
}

}  // namespace varve::cuda
