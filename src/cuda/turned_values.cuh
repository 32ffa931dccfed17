// Weighted sums of turned strips (t4, t3, t2): products of bytes. As on the CPU, weights times the
// scales of their rows are rounded to bytes, here in steps of the page's largest / 255 for each
// head. So codes become operands by one lookup, and a product takes 32 of them.
//
// Places of the operands are those of value_sums.cuh. A word of codes has the same four tokens of
// channel c (low halves of its bytes) and of channel c + 16; its lookup gives both by turns.
// Weights with zeros at every other place take either out.

#ifndef VARVE_CUDA_TURNED_VALUES_CUH_
#define VARVE_CUDA_TURNED_VALUES_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/value_sums.cuh"

namespace varve::cuda {

// Sums of bytes start here: their bits are then those of the f32 number 2^23 + sum.
inline constexpr uint32_t kSumBits = 0x4B000000u;
inline constexpr float kSumZero = 8388608.0f;
// 64 tokens of weights up to 255 and levels up to 127.
static_assert(64 * 255 * 127 < (1 << 23));

// sum = a x b, or sum += a x b.
__device__ __forceinline__ void AddProduct(bool first, const uint32_t (&a)[4], uint2 b,
                                           int (&sum)[4]) {
  constexpr int kStart[4] = {kSumBits, kSumBits, kSumBits, kSumBits};
  if (first) {
    MultiplyAddBytes<false>(sum, a, b, kStart);
  } else {
    MultiplyAddBytes<false>(sum, a, b, sum);
  }
}

// The weights of some tokens as bytes.
template <int NT, int kTiles>
struct ByteWeights {
  uint32_t bytes[kTiles][NT];  // head g, tokens 4i … 4i + 3 of a tile
  float unit[NT][2];           // one step of this lane's heads 2i and 2i + 1, of levels / 2
  float zero[NT][2];           // to add to a sum's bits: what levels have as their zero
};

// Largest over the eight lanes that hold the same heads.
__device__ __forceinline__ float LargestOverTokens(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

template <int NT, int kTiles>
__device__ __forceinline__ void RoundWeights(const std::byte* strip, int first_tile,
                                             const LanePlace& at, const Scores<NT, kTiles>& p,
                                             ByteWeights<NT, kTiles>& w) {
  float2 scale[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    scale[tile] = __half22float2(AsHalf2(Load1(strip + (first_tile + tile) * 32 + at.g * 4)));
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    float x[kTiles][4], inverse[2];
#pragma unroll
    for (int k = 0; k < 4 * kTiles; ++k) {
      x[k / 4][k % 4] = p[k / 4][nt][k % 4] * (k % 4 < 2 ? scale[k / 4].x : scale[k / 4].y);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = 1e-30f;
#pragma unroll
      for (int k = 0; k < 2 * kTiles; ++k) largest = fmaxf(largest, x[k / 2][k % 2 * 2 + h]);
      largest = LargestOverTokens(largest);
      inverse[h] = 255.0f * Reciprocal(largest);
      w.unit[nt][h] = largest * (2.0f * kTurnedUnit / 255.0f);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t byte[4];  // in the lowest bits
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        byte[c] = __float_as_uint(fmaf(x[tile][c], inverse[c % 2], kSumZero));
      }
      w.bytes[tile][nt] = Transpose(PermuteBytes(PermuteBytes(byte[0], byte[2], 0x0040),
                                                 PermuteBytes(byte[1], byte[3], 0x0040), 0x5410));
    }
    // Their sum, of this lane's heads.
    constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
    int sum[4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      MultiplyAddBytes<false>(
          sum, kOnes, uint2{w.bytes[tile][nt], kTiles > 1 ? w.bytes[(tile + 1) % kTiles][nt] : 0u},
          sum);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      w.zero[nt][h] = fmaf(static_cast<float>(sum[h]), -kTurnedZero, -kSumZero);
    }
  }
}

// o += (sum + zero) * unit.
__device__ __forceinline__ void AddByteSum(int sum, float zero, float unit, float& o) {
  o = fmaf(__uint_as_float(static_cast<uint32_t>(sum)) + zero, unit, o);
}

// The weights of a word of four tokens, for its channels c and c + 16.
struct HalfWeights {
  uint2 half[2];

  __device__ __forceinline__ explicit HalfWeights(uint32_t bytes)
      : half{{PermuteBytes(bytes, 0, 0x4140), PermuteBytes(bytes, 0, 0x4342)},
             {PermuteBytes(bytes, 0, 0x1404), PermuteBytes(bytes, 0, 0x3424)}} {}
};

// One block: o += levels x weights, from words of 4-bit codes: nibbles[n][m] has channels 2g + m
// and 16 above, of the four tokens of weights[n].
template <int NT, int kWords, class Table>
__device__ __forceinline__ void AddHalfWords(const Table& table,
                                             const uint32_t (&nibbles)[kWords][2],
                                             const uint32_t (&weights)[kWords][NT],
                                             const float (&zero)[NT][2], const float (&unit)[NT][2],
                                             float (&o)[2][NT][4]) {
  int sum[2][NT][4];
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const ByteLanes x = table.LookUp(nibbles[n][0]), y = table.LookUp(nibbles[n][1]);
    const uint32_t a[4] = {x.low, y.low, x.high, y.high};
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      const HalfWeights b(weights[n][nt]);
      AddProduct(n == 0, a, b.half[0], sum[0][nt]);
      AddProduct(n == 0, a, b.half[1], sum[1][nt]);
    }
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {  // [16 above][m][head]
      const int h = k % 2, m = k / 2 % 2, above = k / 4;
      AddByteSum(sum[above][nt][2 * m + h], zero[nt][h], unit[nt][h], o[m][nt][2 * above + h]);
    }
  }
}

template <int D, int NT, int kTiles>
__device__ __forceinline__ void Turned4ValueSums(const std::byte* strip, int page_tokens,
                                                 int first_tile, const LanePlace& at,
                                                 const Scores<NT, kTiles>& p, Sums<D, NT>& o) {
  const LevelTable<4> table;
  constexpr int kBlocks = D / 32;
  constexpr int kGroup = kBlocks % 2 != 0 ? 1 : 2;  // blocks loaded together
  ByteWeights<NT, kTiles> w;
  RoundWeights<NT, kTiles>(strip, first_tile, at, p, w);
  const std::byte* codes = strip + 2 * page_tokens + first_tile * 256 + at.i * 64 + at.g * 8;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kGroup) {
    uint32_t nibbles[kGroup][kTiles][2];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint2 word = Load2(codes + (first + k) * 16 * page_tokens + tile * 256);
        nibbles[k][tile][0] = word.x;
        nibbles[k][tile][1] = word.y;
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      AddHalfWords<NT>(table, nibbles[k], w.bytes, w.zero, w.unit, o[first + k]);
    }
  }
}

// Lane i of a quad has tokens 4i … 4i + 3 of every tile; afterwards it has every four tokens of
// tile i: w[four][nt].
template <int NT>
__device__ __forceinline__ void TransposeQuads(const LanePlace& at, uint32_t (&w)[4][NT]) {
  const auto exchange = [&](uint32_t& a, uint32_t& b, int bit) {
    const bool upper = (at.i & bit) != 0;
    const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? a : b, bit);
    a = upper ? got : a;
    b = upper ? b : got;
  };
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    exchange(w[0][nt], w[2][nt], 2);
    exchange(w[1][nt], w[3][nt], 2);
    exchange(w[0][nt], w[1][nt], 1);
    exchange(w[2][nt], w[3][nt], 1);
  }
}

// One block of 2-bit codes: a word of nibbles has eight tokens of one channel, by turns of both
// fours; the next has channel 16 above.
template <int NT, class Table>
__device__ __forceinline__ void AddWholeWords(const Table& table, const uint32_t (&nibbles)[4][2],
                                              const uint32_t (&weights)[4][NT],
                                              const float (&zero)[NT][2],
                                              const float (&unit)[NT][2], float (&o)[2][NT][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    int sum[NT][4];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const ByteLanes near = table.LookUp(nibbles[2 * eight][m]);
      const ByteLanes above = table.LookUp(nibbles[2 * eight + 1][m]);
      const uint32_t a[4] = {near.low, above.low, near.high, above.high};
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
        const uint32_t first = weights[2 * eight][nt], second = weights[2 * eight + 1][nt];
        AddProduct(eight == 0, a,
                   uint2{PermuteBytes(first, second, 0x5140), PermuteBytes(first, second, 0x7362)},
                   sum[nt]);
      }
    }
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        AddByteSum(sum[nt][c], zero[nt][c % 2], unit[nt][c % 2], o[m][nt][c]);
      }
    }
  }
}

// A lane has whole cells: those of tile i.
template <int D, int NT, int kTiles, int kBits>
__device__ __forceinline__ void CellValueSums(const std::byte* strip, int page_tokens,
                                              int first_tile, const LanePlace& at,
                                              const Scores<NT, kTiles>& p, Sums<D, NT>& o) {
  const LevelTable<kBits> table;
  constexpr int kBlocks = D / 32;
  static_assert(kTiles == 4);
  constexpr int kCellBytes = 64 * kBits;
  constexpr int kGroup = kBlocks % 2 != 0 ? 1 : 2;  // blocks loaded together
  ByteWeights<NT, kTiles> w;
  RoundWeights<NT, kTiles>(strip, first_tile, at, p, w);
  TransposeQuads<NT>(at, w.bytes);
  const std::byte* codes = strip + 2 * page_tokens + (first_tile + at.i) * kCellBytes + at.g * 8;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kGroup) {
    uint2 lines[kGroup][kBits];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
#pragma unroll
      for (int line = 0; line < kBits; ++line) {
        lines[k][line] = Load2(codes + (first + k) * (page_tokens / 16) * kCellBytes + line * 64);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      uint32_t nibbles[4][2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        uint32_t of_channel[kBits], words[4];
#pragma unroll
        for (int line = 0; line < kBits; ++line) {
          of_channel[line] = m == 0 ? lines[k][line].x : lines[k][line].y;
        }
        CellNibbles<kBits>(of_channel, words);
#pragma unroll
        for (int n = 0; n < 4; ++n) nibbles[n][m] = words[n];
      }
      if constexpr (kBits == 3) {
        AddHalfWords<NT>(table, nibbles, w.bytes, w.zero, w.unit, o[first + k]);
      } else {
        AddWholeWords<NT>(table, nibbles, w.bytes, w.zero, w.unit, o[first + k]);
      }
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_TURNED_VALUES_CUH_
