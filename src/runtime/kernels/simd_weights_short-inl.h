// Rows of blocks of 32 weights multiplied with rounded inputs, for every target.
//
// A block costs its widening to 16 bits, one or two instructions that multiply and add pairs, one
// conversion, and one multiply-add with the product of both scales. Scales are widened for four
// blocks at once. Codes of four and five bits stay unsigned: what they are off the centre, or the
// minimum, meets the sum of the inputs, again for four blocks at once. A row's sum has two chains
// per token, the same for any range of rows and any number of tokens.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_SHORT_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_SHORT_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_SHORT_INL_H_
#endif

#include "runtime/kernels/simd_weights_rounded-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Rows that share the loads of the inputs.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kRoundedRows = 2;
#else
inline constexpr int kRoundedRows = 1;
#endif

using D4 = hn::FixedTag<float, 4>;

// What is added to scale * code: nothing, an f16 minimum, or -kCentre * scale.
enum class Offset { kNone, kMin, kCentre };

// 32 codes as 16-bit values, in the order of the columns.
struct RoundedQ8_0 {
  static constexpr size_t kBytes = 34;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr int kCentre = 0;
  using D16 = DI16;
  static constexpr int kVectors = static_cast<int>(32 / kCodeLanes);

  static HWY_INLINE void Widen(const uint8_t* block, hn::Vec<D16> (&codes)[kVectors]) {
    const hn::Rebind<int8_t, D16> d8;
    const int8_t* from = reinterpret_cast<const int8_t*>(block + 2);
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = hn::PromoteTo(D16(), hn::LoadU(d8, from + v * kCodeLanes));
    }
  }
};

// Sixteen bytes of nibbles fill one vector of 16 codes, twice: longer vectors would have to be put
// together.
template <bool kMin, bool kFifth>
struct RoundedNibbles {
  static constexpr size_t kBytes = 18 + (kMin ? 2 : 0) + (kFifth ? 4 : 0);
  static constexpr Offset kOffset = kMin ? Offset::kMin : Offset::kCentre;
  static constexpr int kCentre = kFifth ? 16 : 8;
  using D16 = hn::CappedTag < int16_t, kCodeLanes<16 ? kCodeLanes : 16>;
  static constexpr int kLanes16 = kCodeLanes < 16 ? kCodeLanes : 16;
  static constexpr int kVectors = 32 / kLanes16;

  static HWY_INLINE void Widen(const uint8_t* block, hn::Vec<D16> (&codes)[kVectors]) {
    const D16 d;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* fifth = block + (kMin ? 4 : 2);
    const uint8_t* nibbles = fifth + (kFifth ? 4 : 0);
    for (int v = 0; v < kVectors / 2; ++v) {
      const auto bytes = hn::PromoteTo(d, hn::LoadU(d8, nibbles + v * kLanes16));
      codes[v] = hn::And(bytes, hn::Set(d, 15));
      codes[v + kVectors / 2] = hn::ShiftRight<4>(bytes);
    }
    if constexpr (kFifth) {
      for (int v = 0; v < kVectors; ++v) codes[v] = AddFifth(codes[v], fifth + v * kLanes16 / 8);
    }
  }

 private:
  static HWY_INLINE hn::Vec<D16> AddFifth(hn::Vec<D16> codes, const uint8_t* bits) {
    const D16 d;
    const auto mask = hn::LoadMaskBits(d, bits);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const auto bit = hn::Set(d, 16);
    return hn::Vec<D16>{_mm256_mask_add_epi16(codes.raw, mask.raw, codes.raw, bit.raw)};
#else
    return hn::Or(codes, hn::IfThenElseZero(mask, hn::Set(d, 16)));
#endif
  }
};

// The sums of kRows rows with kTokens tokens.
template <class Block, int kRows, int kTokens>
struct ShortSums {
  using D16 = typename Block::D16;
  using D32 = hn::RepartitionToWide<D16>;
  using DSum = hn::RebindToFloat<D32>;

  hn::Vec<DSum> chains[kRows][kTokens][2];
  hn::Vec<D4> offsets[kRows][kTokens];  // of four blocks
  float rest[kRows][kTokens];           // offsets of the blocks after the last four

  HWY_INLINE ShortSums() {
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) {
        chains[r][t][0] = chains[r][t][1] = hn::Zero(DSum());
        offsets[r][t] = hn::Zero(D4());
        rest[r][t] = 0;
      }
    }
  }
  template <int kChain>
  HWY_INLINE void Add(int r, int t, const hn::Vec<D16> (&codes)[Block::kVectors],
                      const int16_t* inputs, float scale) {
    PairSums<D32> sums;
    for (int v = 0; v < Block::kVectors; ++v) {
      sums.Add(codes[v], inputs + v * (32 / Block::kVectors));
    }
    chains[r][t][kChain] = hn::MulAdd(sums.Floats(), hn::Set(DSum(), scale), chains[r][t][kChain]);
  }
  HWY_INLINE float Total(int r, int t) const {
    const auto both = hn::Add(chains[r][t][0], chains[r][t][1]);
    const float sum = hn::GetLane(hn::SumOfLanes(DSum(), both));
    if constexpr (Block::kOffset == Offset::kNone) return sum;
    const float offset = hn::GetLane(hn::SumOfLanes(D4(), offsets[r][t])) + rest[r][t];
    return Block::kOffset == Offset::kMin ? sum + offset : sum - Block::kCentre * offset;
  }
};

// Four blocks of one row: their scales times those of the inputs, and their offsets.
template <class Block, int kRows, int kTokens>
HWY_INLINE void ScaleFour(const uint8_t* row, int r, size_t b, const RoundedInput* inputs,
                          ShortSums<Block, kRows, kTokens>& sums, float (&scales)[kTokens][4]) {
  const D4 d;
  const auto weight_scales = FourF16(row, Block::kBytes);
  const auto minima =
      Block::kOffset == Offset::kMin ? FourF16(row + 2, Block::kBytes) : weight_scales;
  for (int t = 0; t < kTokens; ++t) {
    const auto input_scales = hn::LoadU(d, inputs[t].scales + b);
    const auto products = hn::Mul(weight_scales, input_scales);
    hn::Store(products, d, scales[t]);
    if constexpr (Block::kOffset == Offset::kNone) continue;
    const auto offsets = Block::kOffset == Offset::kMin ? hn::Mul(minima, input_scales) : products;
    sums.offsets[r][t] = hn::MulAdd(offsets, hn::LoadU(d, inputs[t].sums + b), sums.offsets[r][t]);
  }
}

// kRows rows from `row` on, with kTokens tokens.
template <class Block, int kRows, int kTokens>
HWY_INLINE void ShortTile(const uint8_t* row, size_t row_bytes, size_t num_blocks,
                          const RoundedInput* inputs, const ReadAheadOf& ahead, float* out,
                          ptrdiff_t out_stride) {
  ShortSums<Block, kRows, kTokens> sums;
  hn::Vec<typename Block::D16> codes[Block::kVectors];
  size_t b = 0;
  for (; b + 4 <= num_blocks; b += 4, row += 4 * Block::kBytes) {
    for (int r = 0; r < kRows; ++r) {
      ahead.template Bytes<4 * Block::kBytes>(row + r * row_bytes);
    }
    alignas(16) float scales[kRows][kTokens][4];
    for (int r = 0; r < kRows; ++r) {
      ScaleFour(row + r * row_bytes, r, b, inputs, sums, scales[r]);
    }
    __asm__("" : "+m"(scales));  // as WidenFour
    const auto add = [&]<int j>() HWY_ATTR {
      for (int r = 0; r < kRows; ++r) {
        Block::Widen(row + r * row_bytes + j * Block::kBytes, codes);
        for (int t = 0; t < kTokens; ++t) {
          sums.template Add<j % 2>(r, t, codes, inputs[t].codes + (b + j) * 32, scales[r][t][j]);
        }
      }
    };
    add.template operator()<0>();
    add.template operator()<1>();
    add.template operator()<2>();
    add.template operator()<3>();
  }
  for (; b < num_blocks; ++b, row += Block::kBytes) {
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* block = row + r * row_bytes;
      const float scale = hn::GetLane(BroadcastF16(D4(), block));
      const float offset =
          Block::kOffset == Offset::kMin ? hn::GetLane(BroadcastF16(D4(), block + 2)) : scale;
      Block::Widen(block, codes);
      for (int t = 0; t < kTokens; ++t) {
        const float by = inputs[t].scales[b];
        sums.template Add<0>(r, t, codes, inputs[t].codes + b * 32, scale * by);
        if (Block::kOffset != Offset::kNone) sums.rest[r][t] += offset * by * inputs[t].sums[b];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = sums.Total(r, t);
  }
}

template <class Block, int kTokens>
void ShortTokens(const WeightMatrix& matrix, int64_t begin, int64_t end, const RoundedInput* inputs,
                 float* out, ptrdiff_t out_stride) {
  const size_t num_blocks = static_cast<size_t>(matrix.cols) / 32;
  const size_t row_bytes = num_blocks * Block::kBytes;
  const uint8_t* row = reinterpret_cast<const uint8_t*>(matrix.data) + begin * row_bytes;
  const size_t num_rows = static_cast<size_t>(end - begin);
  ReadAheadOf ahead(row, num_rows * row_bytes);
  size_t r = 0;
  for (; r + kRoundedRows <= num_rows; r += kRoundedRows, row += kRoundedRows * row_bytes) {
    ahead.Start(row, kRoundedRows * row_bytes);
    ShortTile<Block, kRoundedRows, kTokens>(row, row_bytes, num_blocks, inputs, ahead, out + r,
                                            out_stride);
  }
  for (; r < num_rows; ++r, row += row_bytes) {
    ahead.Start(row, row_bytes);
    ShortTile<Block, 1, kTokens>(row, row_bytes, num_blocks, inputs, ahead, out + r, out_stride);
  }
}

template <class Block>
void MultiplyShort(const WeightMatrix& matrix, int64_t begin, int64_t end,
                   const RoundedInput* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  if (begin >= end) return;
  for (int t = 0; t < num_tokens; t += 2) {
    float* to = out + t * out_stride;
    if (num_tokens - t >= 2) {
      ShortTokens<Block, 2>(matrix, begin, end, inputs + t, to, out_stride);
    } else {
      ShortTokens<Block, 1>(matrix, begin, end, inputs + t, to, out_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
