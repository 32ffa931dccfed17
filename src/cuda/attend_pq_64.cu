#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqAttendKernel64() { return MakeAttendKernel<64, 1, 4, 1, 8, true>(); }

}  // namespace varve::cuda
