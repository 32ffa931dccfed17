#include "cuda/backend/tensor_rows.h"

#include <cstring>

#include "cuda/memory/device_buffers.h"

namespace varve::cuda {
namespace {

// Pieces of a tensor that lie at one distance from each other: copy(offset in the tensor, offset in
// the dense array, width, pitch in the tensor, height).
template <typename CopyPiece>
Status ForEachPiece(const TensorRows& rows, CopyPiece&& copy) {
  const size_t token_bytes = rows.heads * rows.row_bytes;
  if (rows.head_stride == rows.row_bytes) {
    return copy(size_t{0}, size_t{0}, token_bytes, rows.token_stride, rows.tokens);
  }
  for (size_t token = 0; token < rows.tokens; ++token) {
    VARVE_RETURN_IF_ERROR(copy(token * rows.token_stride, token * token_bytes, rows.row_bytes,
                               rows.head_stride, rows.heads));
  }
  return Status();
}

}  // namespace

TensorRows::TensorRows(const void* tensor, int num_tokens, int num_heads, int dim,
                       ptrdiff_t token_values, ptrdiff_t head_values, DType dtype)
    : data(static_cast<std::byte*>(const_cast<void*>(tensor))),
      tokens(static_cast<size_t>(num_tokens)),
      heads(static_cast<size_t>(num_heads)),
      row_bytes(static_cast<size_t>(dim) * DTypeBytes(dtype)) {
  head_stride = head_values != 0 ? static_cast<size_t>(head_values) * DTypeBytes(dtype) : row_bytes;
  token_stride = token_values != 0 ? static_cast<size_t>(token_values) * DTypeBytes(dtype)
                                   : heads * head_stride;
}

void Gather(const TensorRows& rows, std::byte* dense) {
  for (size_t token = 0; token < rows.tokens; ++token) {
    for (size_t head = 0; head < rows.heads; ++head, dense += rows.row_bytes) {
      std::memcpy(dense, rows.data + token * rows.token_stride + head * rows.head_stride,
                  rows.row_bytes);
    }
  }
}

void Scatter(const std::byte* dense, const TensorRows& rows) {
  for (size_t token = 0; token < rows.tokens; ++token) {
    for (size_t head = 0; head < rows.heads; ++head, dense += rows.row_bytes) {
      std::memcpy(rows.data + token * rows.token_stride + head * rows.head_stride, dense,
                  rows.row_bytes);
    }
  }
}

Status GatherOnDevice(const TensorRows& rows, std::byte* dense, cudaStream_t stream) {
  return ForEachPiece(rows, [&](size_t at, size_t to, size_t width, size_t pitch, size_t height) {
    return CudaStatus(cudaMemcpy2DAsync(dense + to, width, rows.data + at, pitch, width, height,
                                        cudaMemcpyDeviceToDevice, stream),
                      "gathering a tensor", width * height);
  });
}

Status ScatterOnDevice(const std::byte* dense, const TensorRows& rows, cudaStream_t stream) {
  return ForEachPiece(rows, [&](size_t at, size_t from, size_t width, size_t pitch, size_t height) {
    return CudaStatus(cudaMemcpy2DAsync(rows.data + at, pitch, dense + from, width, width, height,
                                        cudaMemcpyDeviceToDevice, stream),
                      "scattering a tensor", width * height);
  });
}

}  // namespace varve::cuda
