// What tests may do to the emulated device.

#ifndef VARVE_CUDA_EMULATION_RUNTIME_H_
#define VARVE_CUDA_EMULATION_RUNTIME_H_

namespace varve::cuda::emulation {

// From now on every call that needs the device fails, and no kernel runs; or no longer.
void SetDeviceLost(bool lost);

}  // namespace varve::cuda::emulation

#endif  // VARVE_CUDA_EMULATION_RUNTIME_H_
