// Products of many input rows with a dense f32 matrix, for every target.
//
// Works in blocks of kDenseTokens x kDenseRows sums, each a vector along the columns. Weights and
// inputs are read where they lie, without packing. Columns are taken in chunks, so that the rows of
// a block and their inputs stay in the first caches. A sum does not depend on its block.

#if defined(VARVE_KERNELS_SIMD_DENSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_DENSE_INL_H_
#undef VARVE_KERNELS_SIMD_DENSE_INL_H_
#else
#define VARVE_KERNELS_SIMD_DENSE_INL_H_
#endif

#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

inline constexpr int kDenseTokens = 4;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kDenseRows = 6;  // 24 sums, 4 inputs, 1 weight: of 32 registers
#else
inline constexpr int kDenseRows = 3;  // 12 sums and what one step reads: of 16
#endif
inline constexpr int64_t kDenseChunk = 1024;    // columns
inline constexpr int64_t kDenseTokenTile = 64;  // tokens whose chunk stays in L2

// out[t * out_stride + r] (+)= dot over `count` columns, for kTokens x kRows of them.
template <int kTokens, int kRows>
HWY_INLINE void DenseBlock(const DenseArgs& args, int64_t token, int64_t row, int64_t column,
                           int64_t count) {
  const DF df;
  const int64_t step = static_cast<int64_t>(hn::Lanes(df));
  const float* inputs = args.inputs + token * args.input_stride + column;
  const float* weights = args.rows + row * args.cols + column;
  VF sums[kTokens][kRows];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) sums[t][r] = hn::Zero(df);
  }
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    VF x[kTokens];
    for (int t = 0; t < kTokens; ++t) x[t] = hn::LoadU(df, inputs + t * args.input_stride + i);
    for (int r = 0; r < kRows; ++r) {
      const VF w = hn::LoadU(df, weights + r * args.cols + i);
      for (int t = 0; t < kTokens; ++t) sums[t][r] = hn::MulAdd(w, x[t], sums[t][r]);
    }
  }
  float dots[kTokens][kRows];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) dots[t][r] = hn::GetLane(hn::SumOfLanes(df, sums[t][r]));
  }
  for (; i < count; ++i) {  // columns that fill no vector
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < kRows; ++r) {
        dots[t][r] += weights[r * args.cols + i] * inputs[t * args.input_stride + i];
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    float* out = args.out + (token + t) * args.out_stride + row;
    for (int r = 0; r < kRows; ++r) out[r] = column == 0 ? dots[t][r] : out[r] + dots[t][r];
  }
}

template <int kRows>
HWY_INLINE void DenseRows(const DenseArgs& args, int64_t first, int64_t end, int64_t row,
                          int64_t column, int64_t count) {
  int64_t token = first;
  for (; token + kDenseTokens <= end; token += kDenseTokens) {
    DenseBlock<kDenseTokens, kRows>(args, token, row, column, count);
  }
  for (; token < end; ++token) DenseBlock<1, kRows>(args, token, row, column, count);
}

inline void MultiplyDense(const DenseArgs& args) {
  for (int64_t first = 0; first < args.num_tokens; first += kDenseTokenTile) {
    const int64_t end = std::min<int64_t>(first + kDenseTokenTile, args.num_tokens);
    for (int64_t column = 0; column < args.cols; column += kDenseChunk) {
      const int64_t count = std::min(kDenseChunk, args.cols - column);
      int64_t row = 0;
      for (; row + kDenseRows <= args.num_rows; row += kDenseRows) {
        DenseRows<kDenseRows>(args, first, end, row, column, count);
      }
      for (; row < args.num_rows; ++row) DenseRows<1>(args, first, end, row, column, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
