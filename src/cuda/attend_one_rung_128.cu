#include "cuda/attend_kernel.cuh"

namespace varve::cuda {

// Blocks a multiprocessor and warps were chosen by measuring (docs/decisions/0010).
AttendKernel OneRungKernel128(DeviceRung rung, bool few) {
  using enum DeviceRung;
  switch (rung) {
    case kF16:
      return MakeOneRungKernel<128, kF16, 1, 2, 4>();
    case kBF16:
      return MakeOneRungKernel<128, kBF16, 1, 2, 4>();
    case kQ8_0:
      return MakeOneRungKernel<128, kQ8_0, 4, 1, 6, true>();
    case kQ8_0r:
      return MakeOneRungKernel<128, kQ8_0r, 4, 1, 6, true>();
    case kQ4_0:
      return MakeOneRungKernel<128, kQ4_0, 4, 3, 4>();
    case kQ4_0r:
      return MakeOneRungKernel<128, kQ4_0r, 4, 3, 4>();
    case kPq:
      return MakeOneRungKernel<128, kPq, 4, 1, 8>();
    case kT4:
      return MakeOneRungKernel<128, kT4, 4, 3, 4>();
    case kT3:
      return few ? MakeOneRungKernel<128, kT3, 4, 3, 4>()
                 : MakeOneRungKernel<128, kT3, 4, 1, 12, true>();
    case kT2:
      return few ? MakeOneRungKernel<128, kT2, 4, 3, 4>()
                 : MakeOneRungKernel<128, kT2, 4, 1, 12, true>();
    default:
      return {};
  }
}

}  // namespace varve::cuda
