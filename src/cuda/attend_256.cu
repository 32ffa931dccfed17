#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

// With 16 heads the sums alone would need half of all registers: two blocks share a KV head.
AttendKernel AttendKernel256(bool /*wide*/, bool tiles) {
  return tiles ? MakeAttendKernel<256, 1, 1, 1>() : MakeAttendKernel<256, 1, 4, 2>();
}

}  // namespace varve::cuda
