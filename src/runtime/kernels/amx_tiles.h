// Products of bf16 matrices by AMX's tiles of 16 x 64 bytes.
//
// Weights are the left operand, as rows of 32 columns; tokens are the right one, column pairs side
// by side. So a row of weights is stored as it was decoded, and only the tokens are turned, once
// for all rows. A sum is f32, takes its columns 32 at a time, from the first to the last, and is
// what it is whatever the number of rows, tokens or threads. Numbers below 2^-126 count as zero.
//
// All types here are views. This header stays free of templates: amx_tiles.cc is compiled for
// processors with AVX-512, and what it made of one could end up in a program for others.

#ifndef VARVE_RUNTIME_KERNELS_AMX_TILES_H_
#define VARVE_RUNTIME_KERNELS_AMX_TILES_H_

#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

namespace varve {

inline constexpr int kAmxRows = 16;     // rows of weights, or tokens, of a tile
inline constexpr int kAmxColumns = 32;  // columns of a step
inline constexpr int kAmxTile = kAmxRows * kAmxColumns;

// sums = weights * tokens, or that added to them.
struct AmxProduct {
  const uint16_t* weights;  // [row_groups, steps, 16 rows, 32 columns] bf16
  int row_groups;
  const uint16_t* tokens;  // [token_groups, tokens_steps, 16 pairs, 16 tokens, 2] bf16: the first
                           // step that is taken
  int token_groups;
  int64_t tokens_steps;  // of a whole group
  int64_t steps;         // taken
  bool add;
  float* sums;  // [token_groups, row_groups, 16 rows, 16 tokens], 64-byte aligned
};

// Where the sums of a product go: each with the bias of its row, if there are any.
struct AmxOutput {
  const float* sums;
  int num_tokens;
  int64_t rows;
  const float* bias;  // [rows] or null
  bool add;           // to what is there
  float* out;         // [num_tokens, rows], rows of a token stride apart
  ptrdiff_t stride;
};

struct AmxKernels {
  // `count` tokens of one group, each `cols` f32, `stride` apart, to
  // [ceil(cols / 32), 16 pairs, 16 tokens, 2]. What is missing becomes zeros.
  void (*pack_tokens)(const float* input, ptrdiff_t stride, int count, int64_t cols, uint16_t* out);
  // A row of weights, [cols] f32: 32 columns go to every 512th value of `out`. Columns that are
  // missing from the last step become zeros.
  void (*pack_row)(const float* row, int64_t cols, uint16_t* out);
  void (*multiply)(const AmxProduct& product);
  void (*write_sums)(const AmxOutput& output);
};

// Null where the processor has no AMX-BF16, the system does not permit it, or the compiler that
// built this did not know it. Any thread.
const AmxKernels* FindAmxKernels();

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_AMX_TILES_H_
