// Shared memory beyond the 48 KiB that every kernel may have.

#ifndef VARVE_CUDA_SHARED_MEMORY_H_
#define VARVE_CUDA_SHARED_MEMORY_H_

#include <cstddef>

#include "cuda/device_status.h"

namespace varve::cuda {

// Lets the kernel have `bytes` of dynamic shared memory on the current device. `what` is told in an
// error. Threads may launch a kernel with different sizes at once: what is set does not depend on
// the size.
DeviceStatus AllowSharedMemory(const char* what, const void* kernel, size_t bytes);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_SHARED_MEMORY_H_
