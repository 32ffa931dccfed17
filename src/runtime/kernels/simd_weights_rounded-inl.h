// Rows of blocks of 32 weights multiplied with inputs of 16-bit codes (RoundedInput), for every
// target.
//
// A block costs four vector operations on AVX-512: codes widened to 16 bits, pairs multiplied and
// added, the sums converted, one multiply-add with the product of both scales. (With f32 inputs it
// is seven, and compute hides the reading no more.) A row's sum has two chains per token, the same
// for any range of rows and any number of tokens.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#endif

#include <algorithm>

#include "runtime/kernels/simd_weights_blocks-inl.h"
#include "runtime/kernels/weights.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

using DI16 = hn::RepartitionToNarrow<DI>;
using VI16 = hn::Vec<DI16>;

inline constexpr size_t kCodeLanes = 2 * kLanes;                         // of a VI16
inline constexpr int kBlockVectors = static_cast<int>(32 / kCodeLanes);  // VI16 per block

// Rows that share the loads of the inputs.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kRoundedRows = 2;
#else
inline constexpr int kRoundedRows = 1;
#endif

// How far ahead of the rows in work lines are fetched, toward L2, and how many bytes at once where
// a range begins. Tiles of 128 KB from memory on a Zen 4 core: 18 GB/s with 1 KB, 25 with 4 KB (23
// toward L1), 26 with 8 KB, 24 with 16 KB; the start adds another.
inline constexpr size_t kRoundedAheadBytes = 8192;
inline constexpr size_t kRoundedStartBytes = 4096;

// 32 codes as 16-bit values, in the order of the columns.
struct RoundedQ8_0 {
  static constexpr size_t kBytes = 34;
  static HWY_INLINE void Widen(const uint8_t* block, VI16 (&codes)[kBlockVectors]) {
    const hn::Rebind<int8_t, DI16> d8;
    const int8_t* from = reinterpret_cast<const int8_t*>(block + 2);
    for (int v = 0; v < kBlockVectors; ++v) {
      codes[v] = hn::PromoteTo(DI16(), hn::LoadU(d8, from + v * kCodeLanes));
    }
  }
};

// The products of a block, summed to kLanes partial sums. Each is at most 32 * 128 * 32767 and is
// exact as f32 where a vector holds the block.
HWY_INLINE VF BlockSums(const VI16 (&weights)[kBlockVectors], const int16_t* inputs) {
  VI first = hn::Zero(DI());
  VI second = hn::Zero(DI());  // stays empty on x86
  for (int v = 0; v < kBlockVectors; ++v) {
    first = hn::ReorderWidenMulAccumulate(
        DI(), weights[v], hn::LoadU(DI16(), inputs + v * kCodeLanes), first, second);
  }
#if !HWY_ARCH_X86
  first = hn::Add(first, second);
#endif
  return hn::ConvertTo(DF(), first);
}

// Where the next lines to fetch are, and the last byte that is of use.
struct AheadCursor {
  const uint8_t* at;
  const uint8_t* last;
  template <size_t kCount>
  HWY_INLINE void Bytes() {
    for (size_t line = 0; line < kCount; line += 64) {
      const uint8_t* ahead = at + line;
      __builtin_prefetch(ahead < last ? ahead : last, 0, 2);
    }
    at += kCount;
  }
};

// kRows rows from `row` on, with kTokens tokens.
template <class Block, int kRows, int kTokens>
HWY_INLINE void RoundedTile(const uint8_t* row, size_t row_bytes, size_t num_blocks,
                            const RoundedInput* inputs, AheadCursor& ahead, float* out,
                            ptrdiff_t out_stride) {
  const DF df;
  const hn::FixedTag<float, 4> d4;
  VF sums[kRows][kTokens][2];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums[r][t][0] = sums[r][t][1] = hn::Zero(df);
  }
  size_t b = 0;
  for (; b + 4 <= num_blocks; b += 4, row += 4 * Block::kBytes) {
    ahead.template Bytes<kRows * 4 * Block::kBytes>();
    alignas(16) float scales[kRows][kTokens][4];
    for (int r = 0; r < kRows; ++r) {
      const auto weight_scales = FourF16(row + r * row_bytes, Block::kBytes);
      for (int t = 0; t < kTokens; ++t) {
        hn::Store(hn::Mul(weight_scales, hn::LoadU(d4, inputs[t].scales + b)), d4, scales[r][t]);
      }
    }
    __asm__("" : "+m"(scales));  // as WidenFour
    for (int j = 0; j < 4; ++j) {
      for (int r = 0; r < kRows; ++r) {
        VI16 codes[kBlockVectors];
        Block::Widen(row + r * row_bytes + j * Block::kBytes, codes);
        for (int t = 0; t < kTokens; ++t) {
          sums[r][t][j % 2] = hn::MulAdd(BlockSums(codes, inputs[t].codes + (b + j) * 32),
                                         hn::Set(df, scales[r][t][j]), sums[r][t][j % 2]);
        }
      }
    }
  }
  for (; b < num_blocks; ++b, row += Block::kBytes) {
    for (int r = 0; r < kRows; ++r) {
      uint16_t bits;
      __builtin_memcpy(&bits, row + r * row_bytes, 2);
      VI16 codes[kBlockVectors];
      Block::Widen(row + r * row_bytes, codes);
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t][0] =
            hn::MulAdd(BlockSums(codes, inputs[t].codes + b * 32),
                       hn::Set(df, F16ToF32(bits) * inputs[t].scales[b]), sums[r][t][0]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      out[t * out_stride + r] =
          hn::GetLane(hn::SumOfLanes(df, hn::Add(sums[r][t][0], sums[r][t][1])));
    }
  }
}

template <class Block, int kTokens>
void RoundedTokens(const WeightMatrix& matrix, int64_t begin, int64_t end,
                   const RoundedInput* inputs, float* out, ptrdiff_t out_stride) {
  const size_t num_blocks = static_cast<size_t>(matrix.cols) / 32;
  const size_t row_bytes = num_blocks * Block::kBytes;
  const uint8_t* row = reinterpret_cast<const uint8_t*>(matrix.data) + begin * row_bytes;
  const size_t num_rows = static_cast<size_t>(end - begin);
  const size_t bytes = num_rows * row_bytes;
  AheadCursor ahead = {row + std::min(bytes, kRoundedRows * row_bytes + kRoundedAheadBytes),
                       row + bytes - 1};
  for (size_t at = 0; at < std::min(bytes, kRoundedStartBytes); at += 64) {
    __builtin_prefetch(row + at, 0, 2);
  }
  size_t r = 0;
  for (; r + kRoundedRows <= num_rows; r += kRoundedRows, row += kRoundedRows * row_bytes) {
    RoundedTile<Block, kRoundedRows, kTokens>(row, row_bytes, num_blocks, inputs, ahead, out + r,
                                              out_stride);
  }
  for (; r < num_rows; ++r, row += row_bytes) {
    RoundedTile<Block, 1, kTokens>(row, row_bytes, num_blocks, inputs, ahead, out + r, out_stride);
  }
}

template <class Block>
void MultiplyRounded(const WeightMatrix& matrix, int64_t begin, int64_t end,
                     const RoundedInput* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  if (begin >= end) return;
  for (int t = 0; t < num_tokens; t += 2) {
    float* to = out + t * out_stride;
    if (num_tokens - t >= 2) {
      RoundedTokens<Block, 2>(matrix, begin, end, inputs + t, to, out_stride);
    } else {
      RoundedTokens<Block, 1>(matrix, begin, end, inputs + t, to, out_stride);
    }
  }
}

// See RoundedInput.
inline void RoundInput(const float* values, int64_t count, int16_t* codes, float* scales) {
  const DF df;
  const DI di;
  const hn::Rebind<int16_t, DI> d16;
  for (int64_t i = 0; i < count; i += 32, codes += 32) {
    // As integers the magnitudes have the same order, and nothing finite is above infinity.
    VI most = hn::Zero(di);
    for (size_t j = 0; j < 32; j += kLanes) {
      most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(df, values + i + j))));
    }
    const float largest = hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, most)));
    const RoundingStep step = StepOf(largest);
    scales[i / 32] = step.scale;
    const VF inverse = hn::Set(df, step.inverse);
    for (size_t j = 0; j < 32; j += kLanes) {
      // A block of zero step may hold NaN, and 0 * NaN is no code.
      const VF scaled = hn::Mul(hn::LoadU(df, values + i + j), inverse);
      const VI code = step.inverse == 0 ? hn::Zero(di) : hn::NearestInt(scaled);
      hn::StoreU(hn::DemoteTo(d16, code), d16, codes + j);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
