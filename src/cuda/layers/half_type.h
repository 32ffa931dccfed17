// The 16-bit types that weights and the inputs of products have on a device.

#ifndef VARVE_CUDA_LAYERS_HALF_TYPE_H_
#define VARVE_CUDA_LAYERS_HALF_TYPE_H_

#include <cstdint>

namespace varve::cuda {

enum class HalfType : uint8_t { kF16, kBF16 };

}  // namespace varve::cuda

#endif  // VARVE_CUDA_LAYERS_HALF_TYPE_H_
