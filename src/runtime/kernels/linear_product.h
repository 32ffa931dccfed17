// One tile of a many-token product on one thread: weights decoded into scratch and multiplied
// there, as floats, as integers, or in bf16 by oneDNN (onednn.h). Private to linear.cc.

#ifndef VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_
#define VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights.h"

namespace varve {

struct TileProduct {
  const WeightMatrix* weights = nullptr;
  int64_t begin = 0;  // rows of the weights
  int64_t end = 0;
  const float* input = nullptr;  // [num_tokens, cols], input_stride apart
  ptrdiff_t input_stride = 0;
  int num_tokens = 0;
  uint64_t run = 0;                      // inputs of the same run and address hold the same values
  const PackedInputs* packed = nullptr;  // the input as integers, for kI16; or null
};

// Scratch and cached primitives of one worker; one call at a time.
class TileMultiplier {
 public:
  TileMultiplier();
  ~TileMultiplier();
  TileMultiplier(TileMultiplier&&) noexcept;
  TileMultiplier& operator=(TileMultiplier&&) noexcept;

  // [num_tokens, end - begin], valid until the next call; null if memory ran out.
  const float* Multiply(const WeightKernels& kernels, ProductPrecision precision,
                        const TileProduct& product);

  size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_
