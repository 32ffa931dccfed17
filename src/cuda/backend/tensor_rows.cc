#include "cuda/backend/tensor_rows.h"

#include <cstring>

#include "cuda/memory/device_buffers.h"

namespace varve::cuda {
namespace {

// A part of a tensor whose rows lie at one distance from each other, there and in the dense array.
// In bytes.
struct Piece {
  size_t offset;  // in the tensor
  size_t dense_offset;
  size_t width;
  size_t pitch;  // in the tensor
  size_t dense_pitch;
  size_t height;
};

// As few pieces as there are tokens or heads; one, where heads lie side by side.
template <typename CopyPiece>
Status ForEachPiece(const TensorRows& rows, CopyPiece&& copy) {
  const size_t token_bytes = rows.heads * rows.row_bytes;
  if (rows.head_stride == rows.row_bytes) {
    // Of one token the stride means nothing and may be less than a row.
    const size_t pitch = rows.tokens <= 1 ? token_bytes : rows.token_stride;
    return copy(Piece{0, 0, token_bytes, pitch, token_bytes, rows.tokens});
  }
  if (rows.heads < rows.tokens) {
    for (size_t head = 0; head < rows.heads; ++head) {
      VARVE_RETURN_IF_ERROR(
          copy(Piece{head * rows.head_stride, head * rows.row_bytes, rows.row_bytes,
                     rows.token_stride, token_bytes, rows.tokens}));
    }
    return Status();
  }
  for (size_t token = 0; token < rows.tokens; ++token) {
    VARVE_RETURN_IF_ERROR(copy(Piece{token * rows.token_stride, token * token_bytes, rows.row_bytes,
                                     rows.head_stride, rows.row_bytes, rows.heads}));
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
  return ForEachPiece(rows, [&](const Piece& piece) {
    return CudaStatus(
        cudaMemcpy2DAsync(dense + piece.dense_offset, piece.dense_pitch, rows.data + piece.offset,
                          piece.pitch, piece.width, piece.height, cudaMemcpyDeviceToDevice, stream),
        "gathering a tensor", piece.width * piece.height);
  });
}

Status ScatterOnDevice(const std::byte* dense, const TensorRows& rows, cudaStream_t stream) {
  return ForEachPiece(rows, [&](const Piece& piece) {
    return CudaStatus(cudaMemcpy2DAsync(rows.data + piece.offset, piece.pitch,
                                        dense + piece.dense_offset, piece.dense_pitch, piece.width,
                                        piece.height, cudaMemcpyDeviceToDevice, stream),
                      "scattering a tensor", piece.width * piece.height);
  });
}

}  // namespace varve::cuda
