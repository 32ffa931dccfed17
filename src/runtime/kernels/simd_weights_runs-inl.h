// Rows of blocks of 256 weights multiplied with rounded inputs, for every target; the blocks of
// Q4_K, Q5_K and Q6_K. Those of Q2_K, Q3_K and IQ4_XS are in simd_weights_low_runs-inl.h.
//
// A weight's integer is code times run scale. Products with the inputs are summed as integers over
// the whole block: a run of 32 values costs, beside its unpacking, one multiplication and one
// instruction that multiplies and adds pairs. A lane adds 16 products at most, so the largest sum
// is that of Q6_K, 16 * 32 * 128 * 32767 = 2^31 - 2^16. Minima meet the sums of the inputs, for
// several at once. A row's sum depends neither on the range of rows nor on the other tokens.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_RUNS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_RUNS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_RUNS_INL_H_
#endif

#include "runtime/kernels/simd_weights_rounded-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

inline constexpr int kRunVectors = static_cast<int>(32 / kCodeLanes);  // VI16 per run

// Eight runs as floats: one vector, or two of four.
using DRuns = hn::CappedTag < float, kLanes<8 ? kLanes : 8>;

// Scales of 16 bits in both halves of a dword: from memory they go to all lanes for nothing.
template <size_t kCount>
struct PairedScales {
  alignas(64) int32_t pairs[kCount];

  HWY_INLINE VI16 operator[](size_t i) const {
    return hn::BitCast(DI16(), hn::Set(DI(), pairs[i]));
  }
  // As WidenFour: the compiler, left alone, would keep them in a register and shuffle.
  HWY_INLINE void KeepInMemory() { __asm__("" : "+m"(pairs)); }
};

// From eight unsigned bytes.
HWY_INLINE void PairUnsigned(const uint64_t& bytes, PairedScales<8>& scales) {
  const hn::CappedTag<uint8_t, 4 * (kLanes < 8 ? kLanes : 8)> d8;
  const hn::Repartition<uint64_t, decltype(d8)> d64;
  // A lane of 16 bytes takes four scales: byte i, zero, byte i, zero, …; odd lanes begin at
  // scale 4.
  alignas(32) static constexpr uint8_t kIndex[32] = {0, 128, 0, 128, 1, 128, 1, 128, 2, 128, 2, 128,
                                                     3, 128, 3, 128, 4, 128, 4, 128, 5, 128, 5, 128,
                                                     6, 128, 6, 128, 7, 128, 7, 128};
  const auto all = hn::BitCast(d8, hn::Set(d64, bytes));
  for (size_t i = 0; i < 32; i += hn::Lanes(d8)) {
    const auto pairs = hn::TableLookupBytesOr0(all, hn::Load(d8, kIndex + i));
    hn::Store(pairs, d8, reinterpret_cast<uint8_t*>(scales.pairs) + i);
  }
  scales.KeepInMemory();
}

// From signed bytes.
template <size_t kCount>
HWY_INLINE void PairSigned(const int8_t* bytes, PairedScales<kCount>& scales) {
  const hn::CappedTag<int32_t, (kLanes < kCount ? kLanes : kCount)> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  for (size_t i = 0; i < kCount; i += hn::Lanes(d)) {
    const auto wide = hn::PromoteTo(d, hn::LoadU(d8, bytes + i));
    const auto low = hn::And(wide, hn::Set(d, 0xFFFF));
    hn::Store(hn::Or(hn::ShiftLeft<16>(wide), low), d, scales.pairs + i);
  }
  scales.KeepInMemory();
}

// Sixteen values share a scale: those of vector v of a run.
HWY_INLINE VI16 HalfScaleOf(const PairedScales<16>& scales, int run, int v) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  (void)v;
  const auto lower = hn::FirstN(DI(), 8);
  return hn::BitCast(DI16(), hn::IfThenElse(lower, hn::Set(DI(), scales.pairs[2 * run]),
                                            hn::Set(DI(), scales.pairs[2 * run + 1])));
#else
  return scales[2 * run + v * kCodeLanes / 16];
#endif
}

// kCodeLanes bytes as unsigned 16-bit values.
HWY_INLINE VI16 WidenBytes(const uint8_t* from) {
  const hn::Rebind<uint8_t, DI16> d8;
  return hn::PromoteTo(DI16(), hn::LoadU(d8, from));
}

// Four f16 in a row.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> WidenFields(const uint8_t* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // Straight from memory, which GCC 12 does not find.
  hn::Vec<hn::FixedTag<float, 4>> wide;
  __asm__("vcvtph2ps %1, %0" : "=x"(wide.raw) : "m"(*reinterpret_cast<const uint64_t*>(from)));
  return wide;
#elif HWY_TARGET == HWY_SSE4
  hwy::float16_t four[4];
  __builtin_memcpy(four, from, 8);
  return WidenF16(four);
#else
  const hn::FixedTag<float, 4> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const hn::FixedTag<uint16_t, 4> du16;
  return hn::PromoteTo(d,
                       hn::BitCast(d16, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from))));
#endif
}

// The f16 fields of a block, times the scale of an input: [scale, minimum, …].
struct BlockFields {
  alignas(16) float values[4];
};

// Of a type without minima.
template <int kTokens>
HWY_INLINE void ReadScaleField(const uint8_t* f16, const RoundedInput* inputs, size_t b,
                               BlockFields (&fields)[kTokens]) {
  const float scale = hn::GetLane(BroadcastF16(hn::FixedTag<float, 4>(), f16));
  for (int t = 0; t < kTokens; ++t) fields[t].values[0] = scale * inputs[t].scales[b];
}

// What the f16 minimum of a block is multiplied with: of 8 runs, or of 16 halves of runs.
struct RunMinima {
  alignas(16) uint8_t bytes[16];
};

// The integers of a block of Q4_K or Q5_K: use.Add(v, i, integers) with vector v of the run that
// begins at value i.
template <bool kFifth>
struct RunsQ45K {
  static constexpr size_t kBytes = kFifth ? 176 : 144;
  static constexpr int kMinima = 8;
  using Scales = PairedScales<8>;

  template <int kTokens>
  static HWY_INLINE void ReadFields(const uint8_t* block, const RoundedInput* inputs, size_t b,
                                    BlockFields (&fields)[kTokens]) {
    const hn::FixedTag<float, 4> d;
    const auto stored = WidenFields(block);
    for (int t = 0; t < kTokens; ++t) {
      hn::Store(hn::Mul(stored, hn::Set(d, inputs[t].scales[b])), d, fields[t].values);
    }
    __asm__("" : "+m"(fields));  // as WidenFour
  }

  static HWY_INLINE void ReadScales(const uint8_t* block, Scales& scales, RunMinima& minima) {
    const uint32_t a = LoadU32(block + 4);
    const uint32_t b = LoadU32(block + 8);
    const uint32_t c = LoadU32(block + 12);
    // Written as they will be read: narrower stores would not be forwarded to the vector load.
    const uint64_t both = uint64_t{b} << 32 | a;
    const uint64_t low = both & 0x3F3F3F3F3F3F3F3F;
    const uint64_t high =
        ((uint64_t{c >> 4} << 32 | c) & 0x0F0F0F0F0F0F0F0F) | (both >> 2 & 0x3030303030303030);
    uint64_t bytes = (low & 0xFFFFFFFF) | high << 32;
    const uint64_t last = low >> 32 | (high & 0xFFFFFFFF00000000);
    __builtin_memcpy(minima.bytes, &last, 8);
    // Vectors are loaded from there: a move would cost a shuffle's port.
    __asm__("" : "+m"(bytes), "+m"(minima));
    PairUnsigned(bytes, scales);
  }

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, const Scales& scales, Use& use) {
    VI16 fifth[kRunVectors];  // the bit of run 0 is bit 4, that of run 1 bit 5, …
    if constexpr (kFifth) {
      for (int v = 0; v < kRunVectors; ++v) {
        fifth[v] = hn::ShiftLeft<4>(WidenBytes(block + 16 + v * kCodeLanes));
      }
    }
    const uint8_t* nibbles = block + (kFifth ? 48 : 16);
    for (int pair = 0; pair < 4; ++pair, nibbles += 32) {
      const VI16 low_scale = scales[2 * pair];
      const VI16 high_scale = scales[2 * pair + 1];
      for (int v = 0; v < kRunVectors; ++v) {
        const VI16 bytes = WidenBytes(nibbles + v * kCodeLanes);
        VI16 low = hn::And(bytes, hn::Set(DI16(), 15));
        VI16 high = hn::ShiftRight<4>(bytes);
        if constexpr (kFifth) {
          const VI16 bit = hn::Set(DI16(), 16);
          low = hn::OrAnd(low, fifth[v], bit);
          high = hn::OrAnd(high, hn::ShiftRight<1>(fifth[v]), bit);
          fifth[v] = hn::ShiftRight<2>(fifth[v]);
        }
        use.Add(v, pair * 64, hn::Mul(low, low_scale));
        use.Add(v, pair * 64 + 32, hn::Mul(high, high_scale));
      }
    }
  }
};

struct RunsQ6K {
  static constexpr size_t kBytes = 210;
  static constexpr int kMinima = 0;
  using Scales = PairedScales<16>;

  template <int kTokens>
  static HWY_INLINE void ReadFields(const uint8_t* block, const RoundedInput* inputs, size_t b,
                                    BlockFields (&fields)[kTokens]) {
    ReadScaleField(block + 208, inputs, b, fields);
  }

  static HWY_INLINE void ReadScales(const uint8_t* block, Scales& scales, RunMinima& /*minima*/) {
    PairSigned<16>(reinterpret_cast<const int8_t*>(block + 192), scales);
  }

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, const Scales& scales, Use& use) {
    for (int half = 0; half < 2; ++half) {
      for (int v = 0; v < kRunVectors; ++v) {
        const uint8_t* nibbles = block + half * 64 + v * kCodeLanes;
        const VI16 high = WidenBytes(block + 128 + half * 32 + v * kCodeLanes);
        const VI16 a = WidenBytes(nibbles);
        const VI16 b = WidenBytes(nibbles + 32);
        const VI16 low = hn::Set(DI16(), 15);
        const int run = half * 4;
        Add(v, run, hn::And(a, low), hn::ShiftLeft<4>(high), scales, use);
        Add(v, run + 1, hn::And(b, low), hn::ShiftLeft<2>(high), scales, use);
        Add(v, run + 2, hn::ShiftRight<4>(a), high, scales, use);
        Add(v, run + 3, hn::ShiftRight<4>(b), hn::ShiftRight<2>(high), scales, use);
      }
    }
  }

 private:
  // The high bits are bits 4 and 5 of `high`.
  template <class Use>
  static HWY_INLINE void Add(int v, int run, VI16 low, VI16 high, const Scales& scales, Use& use) {
    const DI16 d;
    const VI16 code = hn::Sub(hn::OrAnd(low, high, hn::Set(d, 0x30)), hn::Set(d, 32));
    use.Add(v, run * 32, hn::Mul(code, HalfScaleOf(scales, run, v)));
  }
};

// Products of a block's integers with kTokens tokens, in chains: by the vector of a run, or, where
// a vector is a run, even and odd ones apart.
template <int kTokens>
struct RunUse {
  static constexpr int kChains = kRunVectors == 1 ? 2 : kRunVectors;
  const int16_t* inputs[kTokens];  // of this block
  PairSums<DI> sums[kTokens][kChains];

  HWY_INLINE RunUse(const RoundedInput* from, size_t block) {
    for (int t = 0; t < kTokens; ++t) inputs[t] = from[t].codes + block * 256;
  }
  HWY_INLINE void Add(int v, int i, VI16 integers) {
    const int chain = kRunVectors == 1 ? i / 32 % 2 : v;
    for (int t = 0; t < kTokens; ++t) {
      sums[t][chain].Add(integers, inputs[t] + i + v * kCodeLanes);
    }
  }
  HWY_INLINE VF Floats(int t) const {
    // Together the sums of a lane fit where there are 16 lanes.
    if constexpr (kLanes == 16) {
      return hn::ConvertTo(DF(), hn::Add(sums[t][0].first, sums[t][1].first));
    }
    VF sum = sums[t][0].Floats();
    for (int v = 1; v < kChains; ++v) sum = hn::Add(sum, sums[t][v].Floats());
    return sum;
  }
};

// One row's sums with kTokens tokens.
template <int kTokens>
struct RowSums {
  VF sums[kTokens];
  hn::Vec<DRuns> minima[kTokens];

  HWY_INLINE RowSums() {
    for (int t = 0; t < kTokens; ++t) {
      sums[t] = hn::Zero(DF());
      minima[t] = hn::Zero(DRuns());
    }
  }
  // kCount minima of block b, to be scaled by fields[t].values[1].
  template <int kCount>
  HWY_INLINE void AddMinima(const RunMinima& from, const RoundedInput* inputs, size_t b,
                            const BlockFields (&fields)[kTokens]) {
    const DRuns d;
    const hn::RebindToSigned<DRuns> di;
    const hn::Rebind<uint8_t, DRuns> d8;
    for (size_t at = 0; at < kCount; at += hn::Lanes(d)) {
      const auto codes = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from.bytes + at)));
      for (int t = 0; t < kTokens; ++t) {
        const auto products = hn::Mul(codes, SumsOf<kCount>(inputs[t], b * kCount + at));
        minima[t] = hn::MulAdd(products, hn::Set(d, fields[t].values[1]), minima[t]);
      }
    }
  }

 private:
  // Sums of the codes that share a minimum.
  template <int kCount>
  static HWY_INLINE hn::Vec<DRuns> SumsOf(const RoundedInput& input, size_t at) {
    const DRuns d;
    if constexpr (kCount == 8) {
      return hn::LoadU(d, input.sums + at);
    } else {
      return hn::ConvertTo(d, hn::LoadU(hn::RebindToSigned<DRuns>(), input.half_sums + at));
    }
  }
};

template <class Block, int kTokens>
HWY_INLINE void AddRunBlock(const uint8_t* block, size_t b, const RoundedInput* inputs,
                            RowSums<kTokens>& row) {
  const DF df;
  BlockFields fields[kTokens];
  Block::ReadFields(block, inputs, b, fields);
  typename Block::Scales scales;
  RunMinima minima;
  Block::ReadScales(block, scales, minima);
  if constexpr (Block::kMinima != 0) {
    row.template AddMinima<Block::kMinima>(minima, inputs, b, fields);
  }
  RunUse<kTokens> use(inputs, b);
  Block::Visit(block, scales, use);
  for (int t = 0; t < kTokens; ++t) {
    row.sums[t] = hn::MulAdd(use.Floats(t), hn::Set(df, fields[t].values[0]), row.sums[t]);
  }
}

template <class Block, int kTokens>
void RunTokens(const WeightMatrix& matrix, int64_t begin, int64_t end, const RoundedInput* inputs,
               float* out, ptrdiff_t out_stride) {
  const size_t num_blocks = static_cast<size_t>(matrix.cols) / 256;
  const size_t row_bytes = num_blocks * Block::kBytes;
  const uint8_t* block = reinterpret_cast<const uint8_t*>(matrix.data) + begin * row_bytes;
  const size_t num_rows = static_cast<size_t>(end - begin);
  ReadAheadOf ahead(block, num_rows * row_bytes);
  for (size_t r = 0; r < num_rows; ++r) {
    RowSums<kTokens> row;
    ahead.Start(block, row_bytes);
    for (size_t b = 0; b < num_blocks; ++b, block += Block::kBytes) {
      ahead.template Bytes<Block::kBytes>(block);
      AddRunBlock<Block>(block, b, inputs, row);
    }
    for (int t = 0; t < kTokens; ++t) {
      float sum = hn::GetLane(hn::SumOfLanes(DF(), row.sums[t]));
      if (Block::kMinima != 0) sum -= hn::GetLane(hn::SumOfLanes(DRuns(), row.minima[t]));
      out[t * out_stride + static_cast<ptrdiff_t>(r)] = sum;
    }
  }
}

template <class Block>
void MultiplyRuns(const WeightMatrix& matrix, int64_t begin, int64_t end,
                  const RoundedInput* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  if (begin >= end) return;
  for (int t = 0; t < num_tokens; t += kTokenTile) {
    float* to = out + t * out_stride;
    switch (num_tokens - t < kTokenTile ? num_tokens - t : kTokenTile) {
      case 1:
        RunTokens<Block, 1>(matrix, begin, end, inputs + t, to, out_stride);
        break;
      case 2:
        RunTokens<Block, 2>(matrix, begin, end, inputs + t, to, out_stride);
        break;
      case 3:
        if constexpr (kTokenTile > 2) {
          RunTokens<Block, 3>(matrix, begin, end, inputs + t, to, out_stride);
        }
        break;
      default:
        if constexpr (kTokenTile > 3) {
          RunTokens<Block, 4>(matrix, begin, end, inputs + t, to, out_stride);
        }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
