#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel128(bool wide, bool tiles) {
  if (tiles) return wide ? MakeAttendKernel<128, 2, 1, 1>() : MakeAttendKernel<128, 1, 1, 2>();
  return wide ? MakeAttendKernel<128, 2, 4, 2>() : MakeAttendKernel<128, 1, 4, 3>();
}

}  // namespace varve::cuda
