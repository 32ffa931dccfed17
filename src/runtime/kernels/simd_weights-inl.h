// Rows of stored weights decoded, and rows of floats multiplied with a few tokens, for every
// target.
//
// A row's sum has four chains per token, the same for any range of rows and any number of tokens:
// whoever splits the work gets the same bits.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_INL_H_
#endif

#include "runtime/kernels/simd_weights_blocks-inl.h"
#include "runtime/kernels/weights.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// How far ahead lines are fetched.
inline constexpr size_t kAheadBytes = 4096;

// Uses of decoded values: write them, or add their products with the inputs.
struct StoreUse {
  float* out;
  template <int k>
  HWY_INLINE void Add(size_t i, VF w) {
    hn::StoreU(w, DF(), out + i);
  }
  template <int k>
  HWY_INLINE void AddScaled(size_t i, VF a, size_t j, VF b, VF scale) {
    Add<k>(i, hn::Mul(a, scale));
    Add<k>(j, hn::Mul(b, scale));
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

// What rows of blocks and rows of floats differ in: whole blocks leave no rest.
struct NoRest {
  static HWY_INLINE size_t Rest(size_t) { return 0; }
  static HWY_INLINE float Value(const uint8_t*, size_t) { return 0.0f; }
};

// Blocks of 32 values, four at a time.
template <class Block>
struct BlockRow : NoRest {
  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* row, size_t cols, const RangePrefetcher& prefetcher,
                               Use& use) {
    size_t i = 0;
    for (; i + 128 <= cols; i += 128, row += 4 * Block::kBytes) {
      for (size_t line = 0; line < 4 * Block::kBytes; line += 64) prefetcher.Line(row + line);
      alignas(16) float scales[4];
      alignas(16) float offsets[4];
      WidenFour(row, Block::kBytes, scales);
      if constexpr (Block::kOffset) WidenFour(row + 2, Block::kBytes, offsets);
      const auto visit = [&]<int b>() HWY_ATTR {
        const BlockScale by = {hn::Set(DF(), scales[b]),
                               Block::kOffset ? hn::Set(DF(), offsets[b]) : hn::Zero(DF())};
        Block::template Visit<b % 2 * 2>(row + b * Block::kBytes, i + b * 32, by, use);
      };
      visit.template operator()<0>();
      visit.template operator()<1>();
      visit.template operator()<2>();
      visit.template operator()<3>();
    }
    for (; i < cols; i += 32, row += Block::kBytes) {
      const BlockScale by = {BroadcastF16(row),
                             Block::kOffset ? BroadcastF16(row + 2) : hn::Zero(DF())};
      Block::template Visit<0>(row, i, by, use);
    }
  }
};

// Blocks of 256 values.
template <class Block>
struct LargeBlockRow : NoRest {
  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* row, size_t cols, const RangePrefetcher& prefetcher,
                               Use& use) {
    for (size_t i = 0; i < cols; i += 256, row += Block::kBytes) {
      for (size_t line = 0; line < Block::kBytes; line += 64) prefetcher.Line(row + line);
      Block::Visit(row, i, use);
    }
  }
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
    // Apart from the rest, so that `use` stays in registers.
    float sums[kTokens];
    for (int t = 0; t < kTokens; ++t) sums[t] = use.Sum(t);
    for (int t = 0; t < kTokens; ++t) {
      for (size_t i = cols - Row::Rest(cols); i < cols; ++i) {
        sums[t] += Row::Value(row, i) * inputs[t][i];
      }
      out[t * out_stride + static_cast<ptrdiff_t>(r)] = sums[t];
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
