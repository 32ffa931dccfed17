#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel PqAttendKernel128() { return MakeAttendKernel<128, 1, 4, 1, 8, true>(); }

}  // namespace varve::cuda
