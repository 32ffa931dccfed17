#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel64(bool wide, bool pq) {
  if (pq) return {};
  return wide ? MakeAttendKernel<64, 2, 4, 3>() : MakeAttendKernel<64, 1, 4, 4>();
}

}  // namespace varve::cuda
