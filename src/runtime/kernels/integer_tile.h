// Weights and activations as integers of 16 bits, for products of many tokens.
//
// A tile of weights is decoded once and meets all tokens: weight = scale * value + offset, where
// value is the code, or for blocks of 256 code times run scale (scalar_rounded.cc). Activations are
// rounded as rounded_input.h says, with codes of 14 bits: 6.1e-5 of a block's largest, and `span`
// products of the largest values fit in 32 bits. Tokens lie sixteen by sixteen, two columns of one
// token in a dword, so that a vector holds tokens and a pair of weights goes to all its lanes.
// All types here are views.

#ifndef VARVE_RUNTIME_KERNELS_INTEGER_TILE_H_
#define VARVE_RUNTIME_KERNELS_INTEGER_TILE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/rounded_input.h"

namespace varve {

inline constexpr int kPackedTokens = 16;     // of a group
inline constexpr int kPackedMost = 8191;     // the largest code of a packed activation
inline constexpr int kIntegerTokens = 64;    // most tokens that share one pass over a tile
inline constexpr int kIntegerColumns = 256;  // columns of a pass

// Some rows of weights.
struct IntegerTile {
  const int16_t* values = nullptr;  // [rows, cols]
  const float* scales = nullptr;    // [rows, cols / block]
  const float* offsets = nullptr;   // [rows, cols / offset_run]; null: none
  int64_t rows = 0;
  int64_t cols = 0;
  int block = 0;                 // 32 or 256
  int span = 0;                  // columns whose products are summed as integers; divides block
  int offset_run = kRoundedRun;  // columns that share an offset: 32, or 16
};

// Activations; tokens that fill no group are followed by zeros.
struct PackedInputs {
  const int16_t* codes = nullptr;    // [groups, cols / 2, 16 tokens, 2 columns]
  const float* scales = nullptr;     // [groups, cols / block, 16]
  const float* sums = nullptr;       // [groups, cols / 32, 16]: scale * sum of 32 codes
  const float* half_sums = nullptr;  // [groups, cols / 16, 16]: scale * sum of 16 codes
  int num_tokens = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_INTEGER_TILE_H_
