// Linear layers over all threads: several products that may run at once in one parallel pass.
//
//   LinearLayers linear(executor, ProductPrecision::kF32);
//   linear.Run(num_tokens, {{&wq, bq, x, d, q, dq}, {&wk, bk, x, d, k, dk}, {&wv, ...}});
//
// Up to kMaxFewTokens tokens each stored row is read once (weights.h). Beyond that, tiles of rows
// are decoded into the worker's scratch and multiplied there: in f32, as integers, or in bf16 by
// AMX (amx_tiles.h). A row's result depends neither on its tile nor on the number of threads. One
// Run at a time per object; the object owns only scratch.

#ifndef VARVE_RUNTIME_KERNELS_LINEAR_H_
#define VARVE_RUNTIME_KERNELS_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/kernels/amx_tiles.h"
#include "runtime/kernels/weights.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

// How the product of many tokens is computed. F32 weights always use f32.
enum class ProductPrecision {
  kF32,   // exact decode, f32 products
  kBF16,  // operands rounded to bf16, f32 sums. With AMX-BF16; as kF32 on other machines
  kI16,   // weights of integers as they are, activations of 14 bits (integer_tile.h), f32 sums over
          // blocks: twice as fast with VNNI. Weights of floats use f32.
};

// bf16 where the machine has AMX-BF16, i16 where it has AVX-512 VNNI, f32 elsewhere.
ProductPrecision FastestPrecision();

// Whether this machine has it: an error says what to use instead.
Status CheckPrecision(ProductPrecision precision);

// "f32", "bf16", "i16".
const char* NameOf(ProductPrecision precision);
std::optional<ProductPrecision> FindPrecision(std::string_view name);

struct LinearTask {
  const WeightMatrix* weights = nullptr;  // [rows, cols]
  const float* bias = nullptr;            // [rows] or null
  const float* input = nullptr;           // [num_tokens, cols], rows input_stride apart
  ptrdiff_t input_stride = 0;             // in floats; 0: cols
  float* output = nullptr;                // [num_tokens, rows], rows output_stride apart
  ptrdiff_t output_stride = 0;            // in floats; 0: rows
  bool add = false;                       // adds to the output (residual) in place of setting it
};

class LinearLayers {
 public:
  static constexpr int kMaxFewTokens = 8;

  // `executor` is not owned and must outlive this. `amx`: the kernels of bf16; null: as kF32.
  LinearLayers(Executor& executor, ProductPrecision precision,
               const AmxKernels* amx = FindAmxKernels());
  ~LinearLayers();
  LinearLayers(const LinearLayers&) = delete;
  LinearLayers& operator=(const LinearLayers&) = delete;

  // All tasks, in one parallel pass; outputs must not overlap each other or any input.
  void Run(int num_tokens, std::span<const LinearTask> tasks);

  size_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_LINEAR_H_
