#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel128(bool wide, bool pq) {
  if (pq) return {};
  return wide ? MakeAttendKernel<128, 2, 4, 2>() : MakeAttendKernel<128, 1, 4, 4>();
}

}  // namespace varve::cuda
