#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

// Blocks a multiprocessor and warps were chosen by measuring (docs/decisions/0010).
AttendKernel OneRungKernel64(DeviceRung rung) {
  using enum DeviceRung;
  switch (rung) {
    case kF16:
      return MakeOneRungKernel<64, kF16, 1, 2, 4>();
    case kBF16:
      return MakeOneRungKernel<64, kBF16, 1, 2, 4>();
    case kQ8_0:
      return MakeOneRungKernel<64, kQ8_0, 4, 4, 4>();
    case kQ8_0r:
      return MakeOneRungKernel<64, kQ8_0r, 4, 4, 4>();
    case kQ4_0:
      return MakeOneRungKernel<64, kQ4_0, 4, 4, 4>();
    case kQ4_0r:
      return MakeOneRungKernel<64, kQ4_0r, 4, 4, 4>();
    case kPq:
      return MakeOneRungKernel<64, kPq, 4, 1, 8>();
    case kT4:
      return MakeOneRungKernel<64, kT4, 4, 4, 4>();
    case kT3:
      return MakeOneRungKernel<64, kT3, 4, 4, 4>();
    case kT2:
      return MakeOneRungKernel<64, kT2, 4, 4, 4>();
    default:
      return {};
  }
}

}  // namespace varve::cuda
