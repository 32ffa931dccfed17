// Where values, scales and codes lie in strips (docs/format/pages.md), for the kernels that write
// them.

#ifndef VARVE_CUDA_STRIP_LAYOUT_CUH_
#define VARVE_CUDA_STRIP_LAYOUT_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/device_pages.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

struct StripPlace {
  bool key;
  int dim;
  int page_tokens;
};

// Index, in values, of (token, channel) of a float strip; head_dim is a multiple of 32.
__device__ __forceinline__ int FloatIndex(const StripPlace& at, int token, int d) {
  return at.key ? (token / 16 * at.dim + d) * 16 + token % 16
                : (d / 32 * at.page_tokens + token) * 32 + d % 32;
}

// Index of the scale of a block.
__device__ __forceinline__ int ScaleIndex(const StripPlace& at, int token, int block) {
  return at.key ? (token / 16 * (at.dim / 32) + block) * 16 + token % 16
                : block * at.page_tokens + token;
}

// Offset of the codes behind the scales, and the mean.
__device__ __forceinline__ int BlockCodesOffset(const StripPlace& at) {
  return 2 * at.page_tokens * (at.dim / 32);
}
__device__ __forceinline__ int TurnedScalesOffset(const StripPlace& at) {
  return at.key ? 2 * at.dim : 0;
}
__device__ __forceinline__ int TurnedCodesAt(const StripPlace& at) {
  return TurnedScalesOffset(at) + 2 * at.page_tokens;
}

// Byte of code c (0 … 31, of q4_0 0 … 15) of a block.
template <int kCodeBytes>
__device__ __forceinline__ int BlockCodeOffset(const StripPlace& at, int token, int block, int c) {
  if (at.key) {
    return (token / 16 * (at.dim / 32) + block) * 16 * kCodeBytes + c / 4 * 64 + token % 16 * 4 +
           c % 4;
  }
  return block * kCodeBytes * at.page_tokens + token / 4 * 4 * kCodeBytes + c * 4 + token % 4;
}

// Cell of a turned strip; plane and place of a code in it.
struct CellPlace {
  int cell;
  int plane;
  int place;
};
__device__ __forceinline__ CellPlace CellOf(const StripPlace& at, int token, int d) {
  if (at.key) {
    return {token / 16 * (at.dim / 32) + d / 32, d % 32 / 4, token % 16 * 4 + d % 4};
  }
  return {d / 32 * (at.page_tokens / 16) + token / 16, token % 16 / 4 * 2 + d % 32 / 16,
          d % 16 * 4 + token % 4};
}

// Codes of a strip as bytes in shared memory, a row per token; and four bytes of the strip made of
// them.
struct CodeRows {
  const uint8_t* codes;  // [page_tokens][dim]
  int dim;

  __device__ __forceinline__ uint32_t At(int token, int d) const { return codes[token * dim + d]; }
};

template <bool kNibbles>
__device__ __forceinline__ uint32_t BlockWord(const StripPlace& at, const CodeRows& rows,
                                              int word) {
  constexpr int kCodeBytes = kNibbles ? 16 : 32;
  uint32_t bytes = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int token, d;
    if (at.key) {
      const int cell = word / (4 * kCodeBytes);
      token = cell / (at.dim / 32) * 16 + word % 16;
      d = cell % (at.dim / 32) * 32 + word / 16 % (kCodeBytes / 4) * 4 + k;
    } else {
      token = word / kCodeBytes % (at.page_tokens / 4) * 4 + k;
      d = word / (kCodeBytes * at.page_tokens / 4) * 32 + word % kCodeBytes;
    }
    uint32_t byte = rows.At(token, d);
    if (kNibbles) byte |= rows.At(token, d + 16) << 4;
    bytes |= byte << (8 * k);
  }
  return bytes;
}

template <int kBits>
__device__ __forceinline__ uint32_t TurnedWord(const StripPlace& at, const CodeRows& rows,
                                               int word) {
  const int cell = word / (16 * kBits), line = word / 16 % kBits, quad = word % 16;
  const int blocks = at.dim / 32, tiles = at.page_tokens / 16;
  const int tile = at.key ? cell / blocks : cell % tiles;
  const int block = at.key ? cell % blocks : cell / tiles;
  uint32_t bytes = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const auto code = [&](int plane) {
      return at.key ? rows.At(16 * tile + quad, 32 * block + 4 * plane + k)
                    : rows.At(16 * tile + plane / 2 * 4 + k, 32 * block + plane % 2 * 16 + quad);
    };
    uint32_t byte;
    if constexpr (kBits == 4) {
      byte = code(2 * line) | code(2 * line + 1) << 4;
    } else if constexpr (kBits == 2) {
      byte = code(4 * line) | code(4 * line + 1) << 2 | code(4 * line + 2) << 4 |
             code(4 * line + 3) << 6;
    } else {
      byte = code(2 * line) | code(2 * line + 1) << 3;
      if (line == 1) {
        byte |= (code(6) >> 2) << 6 | (code(7) >> 2) << 7;
      } else {
        byte |= (code(line == 0 ? 6 : 7) & 3) << 6;
      }
    }
    bytes |= byte << (8 * k);
  }
  return bytes;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_LAYOUT_CUH_
