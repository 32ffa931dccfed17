#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel96(bool wide, bool pq) {
  if (pq) return {};
  return wide ? MakeAttendKernel<96, 2, 4, 2>() : MakeAttendKernel<96, 1, 4, 4>();
}

}  // namespace varve::cuda
