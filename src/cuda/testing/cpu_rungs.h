// The rungs of the CPU with scalar kernels: what the kernels of src/cuda are compared with. Made
// without the table of rungs, so that tests need no third-party library.

#ifndef VARVE_CUDA_TESTING_CPU_RUNGS_H_
#define VARVE_CUDA_TESTING_CPU_RUNGS_H_

#include "cuda/device_pages.h"
#include "rungs/rung.h"

namespace varve::cuda::testing {

// The CPU's rung of that name; null for pq.
const Rung* CpuRung(DeviceRung rung);

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_CPU_RUNGS_H_
