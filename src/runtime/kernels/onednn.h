// oneDNN, for products of bf16 matrices: loaded when it is first asked for (dlopen), so that a
// program which never multiplies in bf16 needs neither it nor what it brings (OpenCL, OpenMP).
//
// It is built on a thread runtime of its own (OpenMP in Debian). It is told to use one thread for
// the calling thread only, for the length of a call; the process's own setting stays.

#ifndef VARVE_RUNTIME_KERNELS_ONEDNN_H_
#define VARVE_RUNTIME_KERNELS_ONEDNN_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "varve/status.h"

namespace varve {

// Ok if oneDNN is there and could be loaded; else why not. Any thread.
Status LoadOneDnn();

// True if this machine has AMX and oneDNN would use it. Loads oneDNN only where the processor has
// it.
bool OneDnnUsesAmx();

// out [tokens, rows] f32 = input [tokens, cols] bf16 * weights [rows, cols]^T bf16, of one shape.
// One call at a time.
class Bf16Product {
 public:
  // Null if oneDNN is not there or refuses the shape.
  static std::unique_ptr<Bf16Product> Make(int64_t tokens, int64_t rows, int64_t cols);
  ~Bf16Product();
  Bf16Product(const Bf16Product&) = delete;
  Bf16Product& operator=(const Bf16Product&) = delete;

  size_t scratch_bytes() const;
  // False if it failed. `scratch` has scratch_bytes().
  bool Run(const uint16_t* input, const uint16_t* weights, float* out, void* scratch) const;

 private:
  struct Impl;
  explicit Bf16Product(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_ONEDNN_H_
