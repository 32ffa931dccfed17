// What tests may do to the emulated device, and ask of it.

#ifndef VARVE_CUDA_EMULATION_RUNTIME_H_
#define VARVE_CUDA_EMULATION_RUNTIME_H_

#include <cstddef>
#include <cstdint>

namespace varve::cuda::emulation {

// From now on every call that needs the device fails, and no kernel runs; or no longer.
void SetDeviceLost(bool lost);

// Shared memory that a block may have; a multiprocessor has 1 KiB more. At first that of Hopper.
inline constexpr size_t kHopperShared = 232448;
void SetSharedMemory(size_t bytes);

// The version of the PTX that kernels were compiled to. At first 90, for Hopper.
void SetPtxVersion(int version);

// Device memory of more than so many bytes at a time cannot be had. At first there is no limit.
void SetLargestAllocation(size_t bytes);

// Since the program's start: bytes that cudaMemsetAsync has written, and how often somebody has
// waited for the default stream.
uint64_t BytesSet();
int DefaultStreamWaits();

}  // namespace varve::cuda::emulation

#endif  // VARVE_CUDA_EMULATION_RUNTIME_H_
