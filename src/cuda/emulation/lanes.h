// How the emulated runtime starts a kernel (lanes.cc).

#ifndef VARVE_CUDA_EMULATION_LANES_H_
#define VARVE_CUDA_EMULATION_LANES_H_

#include <vector_types.h>

#include <cstddef>

namespace varve::cuda::emulation {

// Runs all blocks, one after the other. The kernel takes one structure by reference.
void RunKernel(void (*kernel)(const void*), const void* argument, dim3 grid, dim3 block,
               size_t shared_bytes);

}  // namespace varve::cuda::emulation

#endif  // VARVE_CUDA_EMULATION_LANES_H_
