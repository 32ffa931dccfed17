// What the encoding kernels get; private to src/cuda.

#ifndef VARVE_CUDA_ENCODE_PARAMS_H_
#define VARVE_CUDA_ENCODE_PARAMS_H_

#include "cuda/device_encode.h"

namespace varve::cuda {

struct EncodeParams {
  DeviceEncode call;
  uint32_t key_bytes[kNumRungIds] = {};  // of strips
  uint32_t value_bytes[kNumRungIds] = {};
};

struct AppendParams {
  DeviceAppend call;
  uint32_t strip_bytes = 0;  // K and V alike
};

inline constexpr int kEncodeThreads = 256;
inline constexpr int kAppendThreads = 128;

const void* EncodeKernel(int head_dim);
const void* AppendKernel();

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ENCODE_PARAMS_H_
