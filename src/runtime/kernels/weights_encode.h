// Weights from f32 to what files store, with ggml's reference rounding, byte for byte. For
// converting models; nothing here is on the way of a token.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_ENCODE_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_ENCODE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/weights.h"

namespace varve {

// Floats and the blocks of 32 values; no other.
bool CanEncodeWeights(WeightType type);

// `count` finite values, a multiple of block_values, into their blocks. False if one has no room: a
// value in f16 or bf16, or the scale or the minimum of a block, which then is not finite or not
// what it should be.
bool EncodeWeights(WeightType type, const float* values, int64_t count, std::byte* out);

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_ENCODE_H_
