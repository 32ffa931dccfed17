// Reads all of a range of device memory: the bandwidth that attention is measured against.

#ifndef VARVE_CUDA_TESTING_READ_ALL_H_
#define VARVE_CUDA_TESTING_READ_ALL_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace varve::cuda::testing {

// bytes is a multiple of 1 MiB. `sum` gets something that depends on every byte.
cudaError_t ReadAll(const std::byte* from, size_t bytes, uint32_t* sum, cudaStream_t stream);

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_READ_ALL_H_
