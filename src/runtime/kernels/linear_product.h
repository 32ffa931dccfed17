// One tile of a many-token product on one thread: weights decoded into scratch and multiplied
// there, as floats, as integers, or in bf16 (amx_tiles.h). Private to linear.cc.

#ifndef VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_
#define VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/kernels/amx_tiles.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights.h"

namespace varve {

// Where the products of some rows go.
struct ProductOutput {
  float* data = nullptr;        // [tokens, rows], those of a token stride apart
  ptrdiff_t stride = 0;         // in floats
  const float* bias = nullptr;  // [rows] or null
  bool add = false;             // to what is there
};

// products [num_tokens, rows]
void WriteProducts(const float* products, int num_tokens, int64_t rows,
                   const ProductOutput& output);

struct TileProduct {
  const WeightMatrix* weights = nullptr;
  int64_t begin = 0;  // rows of the weights
  int64_t end = 0;
  const float* input = nullptr;  // [num_tokens, cols], input_stride apart
  ptrdiff_t input_stride = 0;
  int num_tokens = 0;
  ProductOutput output;
  const PackedInputs* packed = nullptr;  // the input as integers, for kI16; or null
  const uint16_t* bf16 = nullptr;   // packed in bf16 (LinearInputs::PackBf16), for kBF16; or null
  const AmxKernels* amx = nullptr;  // which packed it
};

// Scratch of one worker; one call at a time.
class TileMultiplier {
 public:
  TileMultiplier();
  ~TileMultiplier();
  TileMultiplier(TileMultiplier&&) noexcept;
  TileMultiplier& operator=(TileMultiplier&&) noexcept;

  // False if memory ran out; then nothing was written.
  bool Multiply(const WeightKernels& kernels, const TileProduct& product);

  size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_LINEAR_PRODUCT_H_
