// Tensors [tokens, heads, dim] of a caller, with strides, to and from dense arrays.

#ifndef VARVE_CUDA_BACKEND_TENSOR_ROWS_H_
#define VARVE_CUDA_BACKEND_TENSOR_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/device_attention.h"
#include "varve/status.h"
#include "varve/tensor.h"

namespace varve::cuda {

inline TensorType TypeOf(DType dtype) {
  return dtype == DType::kF32   ? TensorType::kF32
         : dtype == DType::kF16 ? TensorType::kF16
                                : TensorType::kBF16;
}

struct TensorRows {
  std::byte* data = nullptr;
  size_t tokens = 0;
  size_t heads = 0;
  size_t row_bytes = 0;     // of a head
  size_t token_stride = 0;  // bytes
  size_t head_stride = 0;

  // Strides of 0 are those of a dense tensor.
  TensorRows(const void* tensor, int num_tokens, int num_heads, int dim, ptrdiff_t token_values,
             ptrdiff_t head_values, DType dtype);

  size_t bytes() const { return tokens * heads * row_bytes; }
  bool IsDense() const {
    return head_stride == row_bytes && (token_stride == heads * row_bytes || tokens <= 1);
  }
};

// In the host's memory.
void Gather(const TensorRows& rows, std::byte* dense);
void Scatter(const std::byte* dense, const TensorRows& rows);

// On the device, in the order of the stream.
Status GatherOnDevice(const TensorRows& rows, std::byte* dense, cudaStream_t stream);
Status ScatterOnDevice(const std::byte* dense, const TensorRows& rows, cudaStream_t stream);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_TENSOR_ROWS_H_
