#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel96(bool wide, bool tiles) {
  if (tiles) return wide ? MakeAttendKernel<96, 2, 1, 1>() : MakeAttendKernel<96, 1, 1, 2>();
  return wide ? MakeAttendKernel<96, 2, 4, 2>() : MakeAttendKernel<96, 1, 4, 3>();
}

}  // namespace varve::cuda
