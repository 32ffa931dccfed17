// Attention on strips of pq with a code of 8 bits for every two channels, pages of 64 tokens and
// heads of 128: what is looked up goes straight to the operands of products, without the way
// through shared memory that other sizes take (pq_attend.cuh).
//
// An operand of a lane is what one code names, two bytes of a word of the table. In products all
// lanes of a column (K: those of one i, V: of one g) want the same word of different rows of the
// table, which all lie in one bank. So a lane looks its words up in an order of its own: at turn j
// a lane of K takes the word of step j ^ g, a lane of V that of block j ^ i. The 32 lanes then read
// 32 different words. Afterwards exchanges of registers bring words to the places of their steps;
// one of the three exchanges of K costs nothing, since it is a choice of bytes where two words
// become one. Products of K are of bytes: the table has centroids less their zero, and queries are
// numbers of 16 bits in two bytes.
//
// Tokens: rows g and g + 8 of tile t are the tokens 8g + 2t and the one behind, not those of
// key_scores.cuh. So a lane's codes of a sub-space lie side by side: eight for K, sixteen for V.

#ifndef VARVE_CUDA_PQ_PAIRS_CUH_
#define VARVE_CUDA_PQ_PAIRS_CUH_

#include "cuda/key_scores.cuh"
#include "cuda/pq_attend.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

// a and b change places in lanes where `change` holds.
__device__ __forceinline__ void Exchange(bool change, uint32_t& a, uint32_t& b) {
  const uint32_t first = change ? b : a;
  b = change ? a : b;
  a = first;
}

// Word p goes to place p ^ turn, turn = 2 * high + low.
__device__ __forceinline__ void ExchangeFour(bool low, bool high, uint32_t (&x)[4]) {
  Exchange(low, x[0], x[1]);
  Exchange(low, x[2], x[3]);
  Exchange(high, x[0], x[2]);
  Exchange(high, x[1], x[3]);
}

// A word of the table's row that byte `kByte` of `codes` names. The code becomes the second byte of
// the address, the word's place in the row the first.
template <int kByte>
__device__ __forceinline__ uint32_t LookUpWord(SharedPlace table, uint32_t codes, uint32_t place) {
  return LoadShared(table +
                    PermuteBytes(codes, place, 0x5504u | static_cast<uint32_t>(kByte) << 4));
}

// The operands of K for one token (row g or g + 8) and all steps: x[p] has the first pairs of steps
// 2p and 2p + 1, y[p] the second ones.
struct PairKeyWords {
  uint32_t x[4];
  uint32_t y[4];
};

// codes[turn][pair]: four tokens each, of which kByte is looked up.
template <int kByte>
__device__ __forceinline__ void LookUpKeys(SharedPlace table, const uint32_t (&codes)[8][2],
                                           uint32_t place, const LanePlace& at,
                                           PairKeyWords& words) {
  // Of two words: their low halves, or the high ones; for odd g the second comes first.
  const uint32_t first = (at.g % 2 == 0 ? 0x5410u : 0x1054u) ^ (at.i % 2 == 0 ? 0u : 0x2222u);
  const uint32_t second = first ^ 0x2222u;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    uint32_t found[2][2];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int turn = 2 * p + k / 2;
      found[k / 2][k % 2] =
          LookUpWord<kByte>(table, codes[turn][k % 2], place ^ static_cast<uint32_t>(16 * turn));
    }
    words.x[p] = PermuteBytes(found[0][0], found[1][0], first);
    words.y[p] = PermuteBytes(found[0][1], found[1][1], second);
  }
  ExchangeFour((at.g & 2) != 0, (at.g & 4) != 0, words.x);
  ExchangeFour((at.g & 2) != 0, (at.g & 4) != 0, words.y);
}

// Sums of bytes start here: their bits are then those of the f32 number 1.5 * 2^23 + sum.
inline constexpr uint32_t kPairSumBits = 0x4B400000u;
inline constexpr float kPairSumZero = 12582912.0f;
// 128 channels of centroids and of bytes of the query.
static_assert(PqPairs::kDim * 128 * 128 < (1 << 22));

__device__ __forceinline__ float PairSum(int sum) {
  return __uint_as_float(static_cast<uint32_t>(sum)) - kPairSumZero;
}

// One tile: bytes kByte and kByte + 1 of the codes. Scores are in units of centroids times steps of
// the query.
template <int NT, int kByte>
__device__ __forceinline__ void PairTileScores(SharedPlace table, const uint32_t (&codes)[8][2],
                                               uint32_t place, const LanePlace& at,
                                               const QuerySet<PqPairs::kDim, NT>& query,
                                               float (&s)[NT][4]) {
  constexpr int kStart[4] = {kPairSumBits, kPairSumBits, kPairSumBits, kPairSumBits};
  PairKeyWords even, odd;
  LookUpKeys<kByte>(table, codes, place, at, even);
  LookUpKeys<kByte + 1>(table, codes, place, at, odd);
  int sum[NT][2][4];  // with high and low bytes of the query
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const uint32_t a[4] = {even.x[p], odd.x[p], even.y[p], odd.y[p]};
#pragma unroll
    for (int k = 0; k < 2 * NT; ++k) {
      int(&to)[4] = sum[k / 2][k % 2];
      const uint2 b = query.Fragment(k / 2, 2 * p + k % 2);
      if (p == 0) {
        MultiplyAddBytes<true>(to, a, b, kStart);
      } else {
        MultiplyAddBytes<true>(to, a, b, to);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 4 * NT; ++k) {
    const auto& of_head = sum[k / 4];
    s[k / 4][k % 4] = fmaf(PairSum(of_head[0][k % 4]), 256.0f, PairSum(of_head[1][k % 4]));
  }
}

template <int NT>
__device__ __forceinline__ void PairKeyScores(SharedPlace table, const std::byte* strip,
                                              const LanePlace& at,
                                              const QuerySet<PqPairs::kDim, NT>& query,
                                              const float* steps, Scores<NT, 4>& s) {
  // Worked out for every page: kept in registers from page to page, places cost more than that.
  const auto lane = static_cast<int>(InRegister(static_cast<uint32_t>(at.lane)));
  const LanePlace here = {lane, lane / 4, lane % 4};
  const auto place = static_cast<uint32_t>(16 * here.g + 4 * here.i);
  const int lane_offset = 512 * here.g + 128 * here.i + 8 * here.g;
  const uint4 gains = *reinterpret_cast<const uint4*>(strip + 16 * at.g);
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // of the eight tokens
    uint32_t codes[8][2];
#pragma unroll
    for (int turn = 0; turn < 8; ++turn) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int offset = (lane_offset ^ 512 * turn) + 64 * (pair ^ at.i % 2) + 4 * half;
        codes[turn][pair] = Load1(strip + PqPairs::kCodes + offset);
      }
    }
    PairTileScores<NT, 0>(table, codes, place, at, query, s[2 * half]);
    PairTileScores<NT, 2>(table, codes, place, at, query, s[2 * half + 1]);
  }
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const float2 gain = __half22float2(AsHalf2(WordOf(gains, tile)));
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[tile][nt][c] *= (c < 2 ? gain.x : gain.y) * (steps[8 * nt + c % 2] * PqPairs::kQueryStep);
      }
    }
  }
}

// The operands of V for one tile: [pair of rows g or g + 8][tokens (0, 2) or (1, 3)][block].
template <int kTile>
__device__ __forceinline__ void LookUpValues(SharedPlace table, const uint4 (&codes)[4][2],
                                             uint32_t place, const LanePlace& at,
                                             uint32_t (&words)[2][2][4]) {
  constexpr int kByte = kTile % 2 * 2;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t halves = pair == 0 ? 0x5410u : 0x7632u;
#pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      const uint32_t to = place ^ static_cast<uint32_t>(32 * turn);
      const uint32_t first = WordOf(codes[turn][pair], kTile / 2);
      const uint32_t second = WordOf(codes[turn][pair], 2 + kTile / 2);
      words[pair][0][turn] = PermuteBytes(LookUpWord<kByte>(table, first, to),
                                          LookUpWord<kByte>(table, second, to), halves);
      words[pair][1][turn] = PermuteBytes(LookUpWord<kByte + 1>(table, first, to),
                                          LookUpWord<kByte + 1>(table, second, to), halves);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      ExchangeFour((at.i & 1) != 0, (at.i & 2) != 0, words[pair][row]);
    }
  }
}

template <int NT, int kTile>
__device__ __forceinline__ void PairTileSums(SharedPlace table, const uint4 (&codes)[4][2],
                                             uint32_t place, const LanePlace& at,
                                             const uint2 (&w)[NT], Sums<PqPairs::kDim, NT>& o) {
  const uint32_t magic = kPermuteWords.magic;
  uint32_t words[2][2][4];
  LookUpValues<kTile>(table, codes, place, at, words);
#pragma unroll
  for (int block = 0; block < PqPairs::kDim / 32; ++block) {
    const uint32_t even[4] = {BytesToHalf2<0, 2>(words[0][0][block], magic),
                              BytesToHalf2<0, 2>(words[1][0][block], magic),
                              BytesToHalf2<0, 2>(words[0][1][block], magic),
                              BytesToHalf2<0, 2>(words[1][1][block], magic)};
    const uint32_t odd[4] = {BytesToHalf2<1, 3>(words[0][0][block], magic),
                             BytesToHalf2<1, 3>(words[1][0][block], magic),
                             BytesToHalf2<1, 3>(words[0][1][block], magic),
                             BytesToHalf2<1, 3>(words[1][1][block], magic)};
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      Multiply(o[block][0][nt], even, w[nt]);
      Multiply(o[block][1][nt], odd, w[nt]);
    }
  }
}

template <int NT>
__device__ __forceinline__ void PairValueSums(SharedPlace table, const std::byte* strip,
                                              const LanePlace& at, const Scores<NT, 4>& p,
                                              Sums<PqPairs::kDim, NT>& o) {
  constexpr uint32_t kOnes[4] = {0x3C003C00u, 0x3C003C00u, 0x3C003C00u, 0x3C003C00u};
  uint4 codes[4][2];
  const int lane_offset = 1024 * at.i + 64 * at.g + 16 * at.i;
#pragma unroll
  for (int turn = 0; turn < 4; ++turn) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      codes[turn][pair] = *reinterpret_cast<const uint4*>(strip + PqPairs::kCodes +
                                                          (lane_offset ^ 1024 * turn) + 512 * pair);
    }
  }
  Weights<NT, 4> w;
  PackWeights<NT, 4>(p, w);
  const uint4 low_gains = *reinterpret_cast<const uint4*>(strip + 32 * at.i);
  const uint4 high_gains = *reinterpret_cast<const uint4*>(strip + 32 * at.i + 16);
  float weight_sum[NT][4] = {};
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const uint32_t low = WordOf(low_gains, tile), high = WordOf(high_gains, tile);
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      w[tile][nt].x = CutWeights(ScaleWeights(w[tile][nt].x, Lows(low, high)));
      w[tile][nt].y = CutWeights(ScaleWeights(w[tile][nt].y, Highs(low, high)));
      Multiply(weight_sum[nt], kOnes, w[tile][nt]);
    }
  }
  const auto place = static_cast<uint32_t>(128 + 32 * at.i + 4 * at.g);
  PairTileSums<NT, 0>(table, codes, place, at, w[0], o);
  PairTileSums<NT, 1>(table, codes, place, at, w[1], o);
  PairTileSums<NT, 2>(table, codes, place, at, w[2], o);
  PairTileSums<NT, 3>(table, codes, place, at, w[3], o);
#pragma unroll
  for (int k = 0; k < PqPairs::kDim / 32 * 8 * NT; ++k) {
    float& sum = o[k / (8 * NT)][k / (4 * NT) % 2][k / 4 % NT][k % 4];
    sum = fmaf(-kPqMagic, weight_sum[k / 4 % NT][k % 2], sum);
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PQ_PAIRS_CUH_
