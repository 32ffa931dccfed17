#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqAttendKernel96() { return MakeAttendKernel<96, 1, 4, 1, 8, true>(); }

}  // namespace varve::cuda
