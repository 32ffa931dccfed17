#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqAttendKernel256() { return MakeAttendKernel<256, 1, 4, 1, 4, true>(); }

}  // namespace varve::cuda
