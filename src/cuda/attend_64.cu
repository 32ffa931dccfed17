#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel64(bool wide, bool tiles) {
  if (tiles) return wide ? MakeAttendKernel<64, 2, 1, 2>() : MakeAttendKernel<64, 1, 1, 3>();
  return wide ? MakeAttendKernel<64, 2, 4, 3>() : MakeAttendKernel<64, 1, 4, 4>();
}

}  // namespace varve::cuda
