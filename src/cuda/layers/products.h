// Products of activations with weights by cuBLASLt: 16-bit inputs, f32 sums, f32 results.
//
// The library is loaded when the first object is made (dlopen), so that a program which never
// computes on a GPU needs none of its 500 MB. Where the kernels are emulated
// (emulation/products_emulated.cc) a plain loop takes its place.

#ifndef VARVE_CUDA_LAYERS_PRODUCTS_H_
#define VARVE_CUDA_LAYERS_PRODUCTS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "cuda/device_status.h"
#include "cuda/layers/half_type.h"

namespace varve::cuda {

// out [rows, outputs] f32 = x [rows, inputs] * weights [outputs, inputs]^T; all of them are device
// memory, dense and aligned to 256 bytes.
struct Product {
  HalfType type = HalfType::kF16;  // of x and weights
  const void* x = nullptr;
  const void* weights = nullptr;
  int rows = 0;
  int inputs = 0;
  int outputs = 0;
  bool add = false;  // to what out holds
  float* out = nullptr;
};

// How the algorithm of a shape is chosen. With kFirst, cuBLASLt's first proposal: the same in every
// run, and so are the results. With kFastest, several are tried when a shape is first met: `out` is
// garbage then, and the call must not be captured. For measuring.
enum class AlgorithmChoice { kFirst, kFastest };

// Owns a handle, its work space and what was chosen for each shape. One thread, one stream.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // On the current device. kNotFound without the library.
  DeviceStatus Create(AlgorithmChoice choice);
  // A shape that was met before allocates nothing; no call waits, but with kFastest.
  DeviceStatus Multiply(const Product& product, cudaStream_t stream);
  size_t workspace_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_LAYERS_PRODUCTS_H_
