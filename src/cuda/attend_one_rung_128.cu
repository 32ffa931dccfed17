#include "cuda/attend_kernel.cuh"

namespace varve::cuda {
namespace {

template <DeviceRung kRung>
AttendKernel CodeKernel(bool few) {
  return few ? MakeOneRungKernel<128, kRung, 4, 3, 4>() : MakeOneRungKernel<128, kRung, 4, 1, 12>();
}
template <DeviceRung kRung>
AttendKernel FloatKernel(bool few) {
  return few ? MakeOneRungKernel<128, kRung, 1, 1, 8>() : MakeOneRungKernel<128, kRung, 1, 2, 4>();
}

}  // namespace

// Blocks a multiprocessor and warps were chosen by measuring (docs/decisions/0010).
AttendKernel OneRungKernel128(DeviceRung rung, bool few) {
  using enum DeviceRung;
  switch (rung) {
    case kF16:
      return FloatKernel<kF16>(few);
    case kBF16:
      return FloatKernel<kBF16>(few);
    case kQ8_0:
      return CodeKernel<kQ8_0>(few);
    case kQ8_0r:
      return CodeKernel<kQ8_0r>(few);
    case kQ4_0:
      return CodeKernel<kQ4_0>(few);
    case kQ4_0r:
      return CodeKernel<kQ4_0r>(few);
    case kPq:
      return MakeOneRungKernel<128, kPq, 4, 1, 8>();
    case kT4:
      return CodeKernel<kT4>(few);
    case kT3:
      return CodeKernel<kT3>(few);
    case kT2:
      return CodeKernel<kT2>(few);
    default:
      return {};
  }
}

}  // namespace varve::cuda
