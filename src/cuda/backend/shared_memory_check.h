// Whether a device has the shared memory that kernels for a cache's pages need: asked when the
// cache is made, as no step could do anything about it.

#ifndef VARVE_CUDA_BACKEND_SHARED_MEMORY_CHECK_H_
#define VARVE_CUDA_BACKEND_SHARED_MEMORY_CHECK_H_

#include "attention/backend.h"
#include "cuda/device_attention.h"
#include "cuda/device_pages.h"

namespace varve::cuda {

// kUnimplemented if Attend, over any mixture of the pages that a layer may have, or Encode would
// need more than limits.shared_per_block. Prompts are not looked at: where their kernel does not
// fit, Attend takes the other one. In setup.rungs the first K and the first V of a layer are those
// of a page, then the second and the second, and so on.
Status CheckSharedMemory(const DeviceSetup& setup, const PageShape& shape,
                         const DeviceLimits& limits);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_SHARED_MEMORY_CHECK_H_
