// Codes of turned strips to bytes: four at a time by one byte permutation from a table in
// registers. The bytes are those of kernels/turned_kernels.h; level = 2 * byte - 127.

#ifndef VARVE_CUDA_TURNED_LOOKUP_CUH_
#define VARVE_CUDA_TURNED_LOOKUP_CUH_

#include <cstdint>

#include "cuda/warp_ops.cuh"
#include "kernels/turned_kernels.h"

namespace varve::cuda {

template <int kBits>
constexpr uint32_t TurnedTable(int first) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(kTurnedBytes<kBits>[static_cast<size_t>(first + i)]) << (8 * i);
  }
  return word;
}

// Bytes of the eight codes in the nibbles of a word: nibbles 0 … 3 and 4 … 7.
struct ByteLanes {
  uint32_t low;
  uint32_t high;
};

constexpr PermuteWords MakePermuteWords() {
  PermuteWords words{};
  words.magic = 0x64646464u;
  for (int i = 0; i < 4; ++i) {
    words.levels[0][i] = TurnedTable<2>(4 * i);
    words.levels[1][i] = TurnedTable<3>(4 * i);
    words.levels[2][i] = TurnedTable<4>(4 * i);
  }
  return words;
}
static __constant__ PermuteWords kPermuteWords = MakePermuteWords();

// The table of a width, in registers: left to itself the compiler copies a word from a uniform
// register for every permutation.
template <int kBits>
struct LevelTable {
  uint32_t word[4];

  __device__ __forceinline__ LevelTable() {
#pragma unroll
    for (int i = 0; i < (kBits == 4 ? 4 : 2); ++i) {
      word[i] = InRegister(kPermuteWords.levels[kBits - 2][i]);
    }
  }

  // Codes in nibbles. Of four bits: a selector with its top bit set gives copies of the chosen
  // byte's top bit, which is 0 in bytes of 7 bits, so each half of the table answers 0 to codes of
  // the other.
  __device__ __forceinline__ ByteLanes LookUp(uint32_t codes) const {
    if constexpr (kBits == 4) {
      const uint32_t flipped = codes ^ 0x88888888u;
      return {PermuteBytes(word[0], word[1], codes) + PermuteBytes(word[2], word[3], flipped),
              PermuteBytes(word[0], word[1], codes >> 16) +
                  PermuteBytes(word[2], word[3], flipped >> 16)};
    } else {
      return {PermuteBytes(word[0], word[1], codes), PermuteBytes(word[0], word[1], codes >> 16)};
    }
  }
};

// The codes of a cell at four places, from its lines: four words of nibbles. Word x holds in
// its low and high nibbles the planes 2x and 2x + 1 of three bits; of two bits x / 2 * 4 + x % 2
// and the one two above.
template <int kBits>
__device__ __forceinline__ void CellNibbles(const uint32_t (&line)[kBits], uint32_t (&x)[4]) {
  if constexpr (kBits == 3) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      x[i] = (line[i] & 0x07070707u) | (line[i] << 1 & 0x70707070u);
    }
    x[3] = (line[0] >> 6 & 0x03030303u) | (line[1] >> 4 & 0x04040404u) |
           (line[2] >> 2 & 0x30303030u) | (line[1] >> 1 & 0x40404040u);
  } else {
    static_assert(kBits == 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = line[i / 2] >> (i % 2 * 2) & 0x33333333u;
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_TURNED_LOOKUP_CUH_
