// Weighted sums of a warp: some tokens of a V strip times the weights of all query heads of a
// group, on the stored bytes.
//
// The weights come as they leave the softmax, in the places of Scores (key_scores.cuh). A tile's
// weights become the B operand: lane 4g + i has those of head g for tokens 4i … 4i + 3. Values are
// the A operand: a block of 32 channels is two products, m = 0 and 1, whose rows g and g + 8 are
// channels 2g + m and 2g + m + 16. So o[block][m][nt][c] is the sum of channel 32 * block + 2g + m
// + 16 * (c / 2) for head 8 * nt + 2i + c % 2.

#ifndef VARVE_CUDA_VALUE_SUMS_CUH_
#define VARVE_CUDA_VALUE_SUMS_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/key_scores.cuh"
#include "cuda/turned_lookup.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

template <int D, int NT>
using Sums = float[D / 32][2][NT][4];

// Weights as operands: tokens (0, 2) and (1, 3) of each four.
template <int NT, int kTiles>
using Weights = uint2[kTiles][NT];

template <int NT, int kTiles>
__device__ __forceinline__ void PackWeights(const Scores<NT, kTiles>& p, Weights<NT, kTiles>& w) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      w[tile][nt].x = Transpose(AsBits(__floats2half2_rn(p[tile][nt][0], p[tile][nt][1])));
      w[tile][nt].y = Transpose(AsBits(__floats2half2_rn(p[tile][nt][2], p[tile][nt][3])));
    }
  }
}

// In two bf16 parts, whose sum has 16 bits.
template <int NT, int kTiles>
__device__ __forceinline__ void PackBrainWeights(const Scores<NT, kTiles>& p,
                                                 Weights<NT, kTiles>& high,
                                                 Weights<NT, kTiles>& low) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      uint32_t part[2][2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float x = p[tile][nt][2 * row], y = p[tile][nt][2 * row + 1];
        const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
        const __nv_bfloat162 l =
            __floats2bfloat162_rn(x - __bfloat162float(h.x), y - __bfloat162float(h.y));
        part[0][row] = Transpose(*reinterpret_cast<const uint32_t*>(&h));
        part[1][row] = Transpose(*reinterpret_cast<const uint32_t*>(&l));
      }
      high[tile][nt] = {part[0][0], part[0][1]};
      low[tile][nt] = {part[1][0], part[1][1]};
    }
  }
}

// Weights times the f16 scales of their tokens. Weights are at most 8 (softmax_state.cuh) and a
// scale of q4_0 of f16 values at most 8188: no product overflows.
__device__ __forceinline__ uint32_t ScaleWeights(uint32_t weights, uint32_t scales) {
  return AsBits(__hmul2(AsHalf2(weights), AsHalf2(scales)));
}

// --- f16 and bf16 ---

// V is [dim / 32][page_tokens][32]: a word is two channels of a token. Rows that are not there may
// hold NaN, which a weight of zero does not hide: `live` is the mask of 64 tokens.
template <int D, int NT, int kTiles, bool kBrain, bool kAllLive>
__device__ __forceinline__ void FloatValueSums(const std::byte* strip, int page_tokens,
                                               int first_tile, const LanePlace& at, uint64_t live,
                                               const Scores<NT, kTiles>& p, Sums<D, NT>& o) {
  Weights<NT, kTiles> high, low;
  if constexpr (kBrain) {
    PackBrainWeights<NT, kTiles>(p, high, low);
  } else {
    PackWeights<NT, kTiles>(p, high);
  }
  const std::byte* base = strip + (first_tile * 16 + 4 * at.i) * 64 + at.g * 4;
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t w[4][2];  // [token][first or second 16 channels]
      const std::byte* from = base + (static_cast<size_t>(block) * page_tokens + 16 * tile) * 64;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        w[t][0] = Load1(from + t * 64);
        w[t][1] = Load1(from + t * 64 + 32);
      }
      if constexpr (!kAllLive) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const bool is_live = live >> (16 * (first_tile % 4 + tile) + 4 * at.i + t) & 1;
          w[t][0] = is_live ? w[t][0] : 0;
          w[t][1] = is_live ? w[t][1] : 0;
        }
      }
      const uint32_t even[4] = {Lows(w[0][0], w[2][0]), Lows(w[0][1], w[2][1]),
                                Lows(w[1][0], w[3][0]), Lows(w[1][1], w[3][1])};
      const uint32_t odd[4] = {Highs(w[0][0], w[2][0]), Highs(w[0][1], w[2][1]),
                               Highs(w[1][0], w[3][0]), Highs(w[1][1], w[3][1])};
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
        Multiply<kBrain>(o[block][0][nt], even, high[tile][nt]);
        Multiply<kBrain>(o[block][1][nt], odd, high[tile][nt]);
        if constexpr (kBrain) {
          Multiply<true>(o[block][0][nt], even, low[tile][nt]);
          Multiply<true>(o[block][1][nt], odd, low[tile][nt]);
        }
      }
    }
  }
}

// --- q8_0 and q4_0 ---

// The operands m = 0 and 1 of one block and tile, from the words of channels 2g (x) and 2g + 1 (y);
// of q8_0 a second pair has channels 16 above. They are too large by a constant, which a product
// of the weights with kLowZero and kHighZero takes off: eight subtractions would cost more.
template <int kWords>
struct ValueCodes;
template <>
struct ValueCodes<1> {
  // -1032 (1024 + 8) for low halves, -72 for high ones.
  static constexpr uint32_t kLowZero = 0xE408E408u, kHighZero = 0xD480D480u;

  __device__ __forceinline__ static void Decode(const uint2 (&w)[1], uint32_t /*magic*/,
                                                uint32_t (&a)[2][4]) {
    constexpr uint32_t kLow = 0x64006400u, kHigh = 0x54005400u;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint32_t x = m == 0 ? w[0].x : w[0].y;
      a[m][0] = MaskOr(x, 0x000F000Fu, kLow);
      a[m][1] = MaskOr(x, 0x00F000F0u, kHigh);
      a[m][2] = MaskOr(x >> 8, 0x000F000Fu, kLow);
      a[m][3] = MaskOr(x >> 8, 0x00F000F0u, kHigh);
    }
  }
};
template <>
struct ValueCodes<2> {
  static constexpr uint32_t kLowZero = 0xE480E480u, kHighZero = kLowZero;  // -1152

  __device__ __forceinline__ static void Decode(const uint2 (&w)[2], uint32_t magic,
                                                uint32_t (&a)[2][4]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint32_t first = (m == 0 ? w[0].x : w[0].y) ^ 0x80808080u;
      const uint32_t second = (m == 0 ? w[1].x : w[1].y) ^ 0x80808080u;
      a[m][0] = BytesToHalf2<0, 2>(first, magic);
      a[m][1] = BytesToHalf2<0, 2>(second, magic);
      a[m][2] = BytesToHalf2<1, 3>(first, magic);
      a[m][3] = BytesToHalf2<1, 3>(second, magic);
    }
  }
};

template <int D, int NT, int kTiles, int kWords>
__device__ __forceinline__ void BlockValueSums(const std::byte* strip, int page_tokens,
                                               int first_tile, const LanePlace& at,
                                               const Scores<NT, kTiles>& p, Sums<D, NT>& o) {
  constexpr int kBlocks = D / 32;
  constexpr int kTileBytes = 256 * kWords;
  constexpr int kGroup = kWords == 2 || kBlocks % 2 != 0 ? 1 : 2;  // blocks loaded together
  const uint32_t magic = kPermuteWords.magic;
  using Codes = ValueCodes<kWords>;
  constexpr uint32_t kZero[4] = {Codes::kLowZero, Codes::kHighZero, Codes::kLowZero,
                                 Codes::kHighZero};
  Weights<NT, kTiles> weights;
  PackWeights<NT, kTiles>(p, weights);
  const std::byte* scales = strip + (first_tile * 16 + 4 * at.i) * 2;
  const std::byte* codes =
      strip + 2 * page_tokens * kBlocks + first_tile * kTileBytes + at.i * (64 * kWords) + at.g * 8;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kGroup) {
    uint2 w[kGroup][kTiles][kWords];
    uint2 scale[kGroup][kTiles];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      const std::byte* block = codes + (first + k) * (16 * kWords) * page_tokens;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          w[k][tile][word] = Load2(block + tile * kTileBytes + word * 64);
        }
        scale[k][tile] = Load2(scales + ((first + k) * page_tokens + 16 * tile) * 2);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      float zero[NT][4] = {};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t a[2][4];
        Codes::Decode(w[k][tile], magic, a);
        const uint32_t even = Lows(scale[k][tile].x, scale[k][tile].y);
        const uint32_t odd = Highs(scale[k][tile].x, scale[k][tile].y);
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
          const uint2 b = {ScaleWeights(weights[tile][nt].x, even),
                           ScaleWeights(weights[tile][nt].y, odd)};
          Multiply(zero[nt], kZero, b);
          Multiply(o[first + k][0][nt], a[0], b);
          Multiply(o[first + k][1][nt], a[1], b);
        }
      }
#pragma unroll
      for (int j = 0; j < 8 * NT; ++j) {
        o[first + k][j / (4 * NT)][j / 4 % NT][j % 4] += zero[j / 4 % NT][j % 4];
      }
    }
  }
}

// The largest finite number in place of infinity.
__device__ __forceinline__ uint32_t CutWeights(uint32_t weights) {
  return AsBits(__hmin2(AsHalf2(weights), __half2half2(__ushort_as_half(0x7BFF))));
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_VALUE_SUMS_CUH_
