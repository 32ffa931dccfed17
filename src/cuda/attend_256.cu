#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

AttendKernel AttendKernel256(bool /*wide*/, bool pq) {
  if (pq) return {};
  // With 16 heads the sums alone would need half of all registers: two blocks share a KV head.
  return MakeAttendKernel<256, 1, 4, 2>();
}

}  // namespace varve::cuda
