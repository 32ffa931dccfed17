// Rows of stored weights decoded, or multiplied with a few tokens, for every target.
//
// A row's sum has four chains per token, the same for any range of rows and any number of tokens:
// whoever splits the work gets the same bits.

#if defined(VARVE_KERNELS_SIMD_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_WEIGHTS_INL_H_
#undef VARVE_KERNELS_SIMD_WEIGHTS_INL_H_
#else
#define VARVE_KERNELS_SIMD_WEIGHTS_INL_H_
#endif

#include "kernels/simd_weights_blocks-inl.h"
#include "kernels/weights.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Tokens that share one pass over a row: as many as chains fit in the register file.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kTokenTile = 4;
#else
inline constexpr int kTokenTile = 2;
#endif

// How far ahead lines are fetched.
inline constexpr size_t kAheadBytes = 4096;

// Uses of decoded values: write them, or add their products with the inputs.
struct StoreUse {
  float* out;
  template <int k>
  HWY_INLINE void Add(size_t i, VF w) {
    hn::StoreU(w, DF(), out + i);
  }
};

template <int kTokens>
struct DotUse {
  const float* inputs[kTokens];
  VF sums[4][kTokens];

  explicit HWY_INLINE DotUse(const float* const* from) {
    for (int t = 0; t < kTokens; ++t) {
      inputs[t] = from[t];
      for (int k = 0; k < 4; ++k) sums[k][t] = hn::Zero(DF());
    }
  }
  template <int k>
  HWY_INLINE void Add(size_t i, VF w) {
    for (int t = 0; t < kTokens; ++t) {
      sums[k][t] = hn::MulAdd(w, hn::LoadU(DF(), inputs[t] + i), sums[k][t]);
    }
  }
  HWY_INLINE float Sum(int t) const {
    const VF sum = hn::Add(hn::Add(sums[0][t], sums[1][t]), hn::Add(sums[2][t], sums[3][t]));
    return hn::GetLane(hn::SumOfLanes(DF(), sum));
  }
};

// Fetches toward L2 what the row range reads kAheadBytes later, and nothing beyond its end.
struct RangePrefetcher {
  const uint8_t* last;
  HWY_INLINE void Line(const uint8_t* at) const {
    const uint8_t* ahead = at + kAheadBytes;
    __builtin_prefetch(ahead < last ? ahead : last, 0, 2);
  }
};

// All blocks of a row.
template <class Block>
struct BlockRow {
  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* row, size_t cols, const RangePrefetcher& prefetcher,
                               Use& use) {
    size_t i = 0;
    if constexpr (Block::kValues == 32) {
      for (; i + 64 <= cols; i += 64, row += 2 * Block::kBytes) {
        prefetcher.Line(row);
        Block::template Visit<0>(row, i, use);
        Block::template Visit<2>(row + Block::kBytes, i + 32, use);
      }
      if (i < cols) Block::template Visit<0>(row, i, use);
    } else {
      for (; i < cols; i += Block::kValues, row += Block::kBytes) {
        for (size_t line = 0; line < Block::kBytes; line += 64) prefetcher.Line(row + line);
        Block::template Visit<0>(row, i, use);
      }
    }
  }
  // Whole blocks leave no rest.
  static HWY_INLINE size_t Rest(size_t) { return 0; }
  static HWY_INLINE float Value(const uint8_t*, size_t) { return 0.0f; }
};

// A row of floats: whole vectors; the last cols % N values are left to the caller.
template <FloatType kType>
struct FloatRow {
  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* row, size_t cols, const RangePrefetcher& prefetcher,
                               Use& use) {
    const std::byte* base = reinterpret_cast<const std::byte*>(row);
    size_t i = 0;
    for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
      for (size_t line = 0; line < 4 * kLanes * FloatBytes(kType); line += 64) {
        prefetcher.Line(row + i * FloatBytes(kType) + line);
      }
      use.template Add<0>(i, LoadValues<kType>(base, i));
      use.template Add<1>(i + kLanes, LoadValues<kType>(base, i + kLanes));
      use.template Add<2>(i + 2 * kLanes, LoadValues<kType>(base, i + 2 * kLanes));
      use.template Add<3>(i + 3 * kLanes, LoadValues<kType>(base, i + 3 * kLanes));
    }
    for (; i + kLanes <= cols; i += kLanes) use.template Add<0>(i, LoadValues<kType>(base, i));
  }
  static HWY_INLINE size_t Rest(size_t cols) { return cols % kLanes; }
  static HWY_INLINE float Value(const uint8_t* row, size_t i) {
    if constexpr (kType == FloatType::kF32) {
      float value;
      __builtin_memcpy(&value, row + 4 * i, 4);
      return value;
    } else {
      uint16_t bits;
      __builtin_memcpy(&bits, row + 2 * i, 2);
      return kType == FloatType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
    }
  }
};

template <class Row>
void DecodeWeights(const std::byte* blocks, int64_t count, float* out) {
  const uint8_t* row = reinterpret_cast<const uint8_t*>(blocks);
  const size_t cols = static_cast<size_t>(count);
  StoreUse use = {out};
  Row::Visit(row, cols, RangePrefetcher{row}, use);
  for (size_t i = cols - Row::Rest(cols); i < cols; ++i) out[i] = Row::Value(row, i);
}

template <class Row, int kTokens>
void MultiplyTokens(const WeightMatrix& matrix, int64_t begin, int64_t end,
                    const float* const* inputs, float* out, ptrdiff_t out_stride) {
  const size_t cols = static_cast<size_t>(matrix.cols);
  const size_t row_bytes = matrix.row_bytes();
  const uint8_t* row = reinterpret_cast<const uint8_t*>(matrix.data) + begin * row_bytes;
  const size_t num_rows = static_cast<size_t>(end - begin);
  const RangePrefetcher prefetcher = {row + num_rows * row_bytes - 1};
  for (size_t r = 0; r < num_rows; ++r, row += row_bytes) {
    DotUse<kTokens> use(inputs);
    Row::Visit(row, cols, prefetcher, use);
    for (int t = 0; t < kTokens; ++t) {
      float sum = use.Sum(t);
      for (size_t i = cols - Row::Rest(cols); i < cols; ++i)
        sum += Row::Value(row, i) * inputs[t][i];
      out[t * out_stride + static_cast<ptrdiff_t>(r)] = sum;
    }
  }
}

template <class Row>
void MultiplyWeights(const WeightMatrix& matrix, int64_t begin, int64_t end,
                     const float* const* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  if (begin >= end) return;
  for (int t = 0; t < num_tokens; t += kTokenTile) {
    float* to = out + t * out_stride;
    switch (num_tokens - t < kTokenTile ? num_tokens - t : kTokenTile) {
      case 1:
        MultiplyTokens<Row, 1>(matrix, begin, end, inputs + t, to, out_stride);
        break;
      case 2:
        MultiplyTokens<Row, 2>(matrix, begin, end, inputs + t, to, out_stride);
        break;
      case 3:
        if constexpr (kTokenTile > 2) {
          MultiplyTokens<Row, 3>(matrix, begin, end, inputs + t, to, out_stride);
        }
        break;
      default:
        if constexpr (kTokenTile > 3) {
          MultiplyTokens<Row, 4>(matrix, begin, end, inputs + t, to, out_stride);
        }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
