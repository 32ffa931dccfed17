// Scores of a warp: some tokens of a K strip against all query heads of a group, on the stored
// bytes.
//
// A *tile* is 16 tokens, from `first_tile` on; a warp takes four at a time, or one. It is the A
// operand of a product: rows g and g + 8 are its tokens 2g and 2g + 1, columns are channels in the
// order of query_orders.cuh. So s[tile][nt][c] is the score of token 2g + c / 2 with head 8 * nt +
// 2i + c % 2, where lane = 4g + i.

#ifndef VARVE_CUDA_KEY_SCORES_CUH_
#define VARVE_CUDA_KEY_SCORES_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/query_orders.cuh"
#include "cuda/turned_lookup.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

template <int NT, int kTiles>
using Scores = float[kTiles][NT][4];

// One order of the queries in shared memory.
template <int D, int NT>
struct QuerySet {
  const uint2* fragments;  // [NT][Steps::kMost][32], this lane's
  const float* offsets;  // [blocks][8 * NT] what a block of codes adds too much, this lane's heads

  __device__ __forceinline__ uint2 Fragment(int nt, int step) const {
    return fragments[(nt * Steps<D>::kMost + step) * 32];
  }
  __device__ __forceinline__ float2 Offset(int nt, int block) const {
    return *reinterpret_cast<const float2*>(offsets + block * 8 * NT + 8 * nt);
  }
};

struct LanePlace {
  int lane;
  int g;  // lane / 4
  int i;  // lane % 4
};

template <int NT, int kTiles>
__device__ __forceinline__ void ClearScores(Scores<NT, kTiles>& s) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[tile][nt][c] = 0.0f;
    }
  }
}

// --- f16 and bf16 ---

// K is [tile][dim][16 tokens]: a word is two tokens of a channel; two channels' words make the
// operands of both tokens.
template <int D, int NT, int kTiles, bool kBrain>
__device__ __forceinline__ void FloatKeyScores(const std::byte* strip, int first_tile,
                                               const LanePlace& at, const QuerySet<D, NT>& high,
                                               const QuerySet<D, NT>& low, Scores<NT, kTiles>& s) {
  ClearScores<NT, kTiles>(s);
  const std::byte* base = strip + first_tile * (D * 32) + at.i * 32 + at.g * 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    constexpr int kGroup = D == 96 ? 6 : 4;  // steps loaded together
#pragma unroll
    for (int first = 0; first < D / 16; first += kGroup) {
      uint32_t w[kGroup][4];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          w[k][j] = Load1(base + (tile * D + 16 * (first + k) + 4 * j) * 32);
        }
      }
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const uint32_t a[4] = {Lows(w[k][0], w[k][1]), Highs(w[k][0], w[k][1]),
                               Lows(w[k][2], w[k][3]), Highs(w[k][2], w[k][3])};
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
          Multiply<kBrain>(s[tile][nt], a, high.Fragment(nt, first + k));
          if constexpr (kBrain) Multiply<true>(s[tile][nt], a, low.Fragment(nt, first + k));
        }
      }
    }
  }
}

// --- q8_0 and q4_0 ---

// The operands of one block and tile: codes + kByteMagic, or + kNibbleMagic for high nibbles. `w`
// has the words of tokens 2g (x) and 2g + 1 (y): of q4_0 one, of q8_0 two.
__device__ __forceinline__ void DecodeKeyWords(const uint2 (&w)[1], uint32_t /*magic*/,
                                               uint32_t (&a)[2][4]) {
  constexpr uint32_t kLow = 0x64006400u, kHigh = 0x54005400u;
  const uint32_t x = w[0].x, y = w[0].y;
  a[0][0] = MaskOr(x, 0x000F000Fu, kLow);
  a[0][1] = MaskOr(y, 0x000F000Fu, kLow);
  a[0][2] = MaskOr(x >> 8, 0x000F000Fu, kLow);
  a[0][3] = MaskOr(y >> 8, 0x000F000Fu, kLow);
  a[1][0] = MaskOr(x, 0x00F000F0u, kHigh);
  a[1][1] = MaskOr(y, 0x00F000F0u, kHigh);
  a[1][2] = MaskOr(x >> 8, 0x00F000F0u, kHigh);
  a[1][3] = MaskOr(y >> 8, 0x00F000F0u, kHigh);
}
__device__ __forceinline__ void DecodeKeyWords(const uint2 (&w)[2], uint32_t magic,
                                               uint32_t (&a)[2][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    a[half][0] = BytesToHalf2<0, 2>(w[half].x, magic);
    a[half][1] = BytesToHalf2<0, 2>(w[half].y, magic);
    a[half][2] = BytesToHalf2<1, 3>(w[half].x, magic);
    a[half][3] = BytesToHalf2<1, 3>(w[half].y, magic);
  }
}

// kWords: 32-bit words of a lane per block, 2 (q8_0) or 1 (q4_0).
template <int D, int NT, int kTiles, int kWords>
__device__ __forceinline__ void BlockKeyScores(const std::byte* strip, int page_tokens,
                                               int first_tile, const LanePlace& at,
                                               const QuerySet<D, NT>& query,
                                               Scores<NT, kTiles>& s) {
  constexpr int kBlocks = D / 32;
  constexpr int kBlockBytes = 256 * kWords;                        // of a tile
  constexpr int kGroup = kWords == 2 || kBlocks % 2 != 0 ? 1 : 2;  // blocks loaded together
  const uint32_t magic = kPermuteWords.magic;
  const std::byte* scales = strip + first_tile * (kBlocks * 32) + at.g * 4;
  const std::byte* codes = strip + 2 * page_tokens * kBlocks +
                           first_tile * (kBlocks * kBlockBytes) + at.i * 64 + at.g * 8;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kGroup) {
    uint2 w[kTiles][kGroup][kWords];
    uint32_t scale[kTiles][kGroup];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const int cell = tile * kBlocks + first + k;
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          w[tile][k][word] = Load2(codes + cell * kBlockBytes + word * 256);
        }
        scale[tile][k] = Load1(scales + cell * 32);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      uint2 q[NT][2];
      float2 offset[NT];
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
        q[nt][0] = query.Fragment(nt, 2 * (first + k));
        q[nt][1] = query.Fragment(nt, 2 * (first + k) + 1);
        offset[nt] = query.Offset(nt, first + k);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t a[2][4];
        DecodeKeyWords(w[tile][k], magic, a);
        const float2 factor = __half22float2(AsHalf2(scale[tile][k]));
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
          const float start[4] = {offset[nt].x, offset[nt].y, offset[nt].x, offset[nt].y};
          float sum[4];
          MultiplyAdd(sum, a[0], q[nt][0], start);
          Multiply(sum, a[1], q[nt][1]);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const float x = c < 2 ? factor.x : factor.y;
            float& score = s[tile][nt][c];
            score = first + k == 0 ? sum[c] * x : fmaf(sum[c], x, score);
          }
        }
      }
    }
  }
}

// --- t4, t3, t2 ---

// Query times the mean of the page's keys: mean[nt] has this lane's heads. A lane loads eight
// channels of a block of 32, four words: as rows of A two of them are one half of the channels, two
// the other. Each product is with the queries of one half, so of its results one half of the rows
// counts.
template <int D, int NT>
__device__ __forceinline__ void MeanScores(const std::byte* strip, const LanePlace& at,
                                           const QuerySet<D, NT>& query, float (&mean)[NT][2]) {
  float sums[2][NT][4] = {};
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
    const uint4 w = *reinterpret_cast<const uint4*>(strip + block * 64 + at.i * 16);
    const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      Multiply(sums[0][nt], a, query.Fragment(nt, 2 * block));
      Multiply(sums[1][nt], a, query.Fragment(nt, 2 * block + 1));
    }
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    mean[nt][0] = sums[0][nt][0] + sums[1][nt][2];
    mean[nt][1] = sums[0][nt][1] + sums[1][nt][3];
  }
}

// Sums of bytes start here: their bits are then those of the f32 number 1.5 * 2^23 + sum, where
// |sum| < 2^22.
inline constexpr int kScoreSumBits = 0x4B400000;
inline constexpr float kScoreSumZero = 12582912.0f;

// sum = a x b, from the start, or sum += a x b.
__device__ __forceinline__ void AddScoreProduct(bool first, const uint32_t (&a)[4], uint2 b,
                                                int (&sum)[4]) {
  constexpr int kStart[4] = {kScoreSumBits, kScoreSumBits, kScoreSumBits, kScoreSumBits};
  if (first) {
    MultiplyAddBytes<true>(sum, a, b, kStart);
  } else {
    MultiplyAddBytes<true>(sum, a, b, sum);
  }
}

// Sums of bytes to scores, in units of the queries' steps: with the rows' scales and the mean's
// scores, which `inverse_units` brings to them.
template <int D, int NT, int kTiles>
__device__ __forceinline__ void FinishTurnedScores(
    const std::byte* strip, int first_tile, const LanePlace& at, const QuerySet<D, NT>& query,
    const float* inverse_units, const QuerySet<D, NT>& mean_query, const int (&sums)[kTiles][NT][4],
    Scores<NT, kTiles>& s) {
  float mean[NT][2];
  MeanScores<D, NT>(strip, at, mean_query, mean);
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    mean[nt][0] *= inverse_units[8 * nt];
    mean[nt][1] *= inverse_units[8 * nt + 1];
  }
  const std::byte* scales = strip + 2 * D + first_tile * 32 + at.g * 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 scale = __half22float2(AsHalf2(Load1(scales + tile * 32)));
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      // Exact but for the half in offsets of odd sums, a 10^-5 of what scores are.
      const float2 offset = query.Offset(nt, 0);
      const float zero[2] = {offset.x - kScoreSumZero, offset.y - kScoreSumZero};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float sum = __uint_as_float(static_cast<uint32_t>(sums[tile][nt][c])) + zero[c % 2];
        s[tile][nt][c] = fmaf(sum, c < 2 ? scale.x : scale.y, mean[nt][c % 2]);
      }
    }
  }
}

// A lane has line i of each cell: channels 8i … 8i + 7 of its two tokens.
template <int D, int NT, int kTiles>
__device__ __forceinline__ void Turned4KeyScores(const std::byte* strip, int page_tokens,
                                                 int first_tile, const LanePlace& at,
                                                 const QuerySet<D, NT>& query,
                                                 int (&sums)[kTiles][NT][4]) {
  const LevelTable<4> table;
  constexpr int kBlocks = D / 32;
  constexpr int kGroup = kBlocks % 2 != 0 ? 1 : 2;  // blocks loaded together
  const std::byte* codes =
      strip + 2 * D + 2 * page_tokens + first_tile * (kBlocks * 256) + at.i * 64 + at.g * 8;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kGroup) {
    uint2 w[kTiles][kGroup];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        w[tile][k] = Load2(codes + (tile * kBlocks + first + k) * 256);
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      uint2 q[NT];
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) q[nt] = query.Fragment(nt, first + k);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const ByteLanes x = table.LookUp(w[tile][k].x);
        const ByteLanes y = table.LookUp(w[tile][k].y);
        const uint32_t a[4] = {x.low, y.low, x.high, y.high};
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) AddScoreProduct(first + k == 0, a, q[nt], sums[tile][nt]);
      }
    }
  }
}

// A lane has whole cells, of block i of four: with 3 bits the planes of a cell cannot be had from
// one line each. Where there are fewer blocks than lanes, the last is read again and counts
// nothing.
template <int D, int NT, int kTiles, int kBits>
__device__ __forceinline__ void CellKeyScores(const std::byte* strip, int page_tokens,
                                              int first_tile, const LanePlace& at,
                                              const QuerySet<D, NT>& query,
                                              int (&sums)[kTiles][NT][4]) {
  const LevelTable<kBits> table;
  constexpr int kBlocks = D / 32;
  constexpr int kCellBytes = 64 * kBits;
#pragma unroll
  for (int round = 0; round < Steps<D>::kRounds; ++round) {
    const int block = min(4 * round + at.i, kBlocks - 1);
    const std::byte* codes =
        strip + 2 * D + 2 * page_tokens + (first_tile * kBlocks + block) * kCellBytes + at.g * 8;
    uint2 w[kTiles][kBits];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int line = 0; line < kBits; ++line) {
        w[tile][line] = Load2(codes + tile * kBlocks * kCellBytes + line * 64);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t lines_x[kBits], lines_y[kBits], nibbles_x[4], nibbles_y[4];
#pragma unroll
      for (int line = 0; line < kBits; ++line) {
        lines_x[line] = w[tile][line].x;
        lines_y[line] = w[tile][line].y;
      }
      CellNibbles<kBits>(lines_x, nibbles_x);
      CellNibbles<kBits>(lines_y, nibbles_y);
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const ByteLanes x = table.LookUp(nibbles_x[word]);
        const ByteLanes y = table.LookUp(nibbles_y[word]);
        const uint32_t a[4] = {x.low, y.low, x.high, y.high};
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
          AddScoreProduct(round + word == 0, a, query.Fragment(nt, 4 * round + word),
                          sums[tile][nt]);
        }
      }
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_KEY_SCORES_CUH_
