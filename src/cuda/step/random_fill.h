// Made-up weights, made on the device.

#ifndef VARVE_CUDA_STEP_RANDOM_FILL_H_
#define VARVE_CUDA_STEP_RANDOM_FILL_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace varve::cuda::step {

// Values between -scale and scale that depend on `seed`.
void FillRandom(__half* values, size_t count, float scale, uint32_t seed, cudaStream_t stream);

}  // namespace varve::cuda::step

#endif  // VARVE_CUDA_STEP_RANDOM_FILL_H_
