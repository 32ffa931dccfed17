// Woven rows (woven_rows.h) multiplied with rounded inputs, for AVX-512 VNNI: a lane is a row.
//
// A pair of columns costs a shift, a mask and one instruction that multiplies and adds pairs,
// with the inputs broadcast from memory. Products within a run are exact integers; runs are added
// as floats, with their scales. A row's sum depends neither on the range of rows nor on the other
// tokens.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_WOVEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_WOVEN_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_WOVEN_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_WOVEN_INL_H_
#endif

#include "runtime/kernels/scalar_blocks.h"
#include "runtime/kernels/simd_weights_rounded-inl.h"
#include "runtime/kernels/woven_rows.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// sums += products of pairs, with one pair of inputs for all lanes.
HWY_INLINE void AddPairOf(VI& sums, VI weights, const int16_t* inputs) {
  __asm__("vpdpwssd %2%{1to16%}, %1, %0"
          : "+v"(sums.raw)
          : "v"(weights.raw), "m"(*reinterpret_cast<const int32_t*>(inputs)));
}

HWY_INLINE VF WidenRows(const uint8_t* f16) {
  return VF{_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(f16)))};
}
HWY_INLINE VF UnsignedRows(const uint8_t* bytes) {
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<uint8_t, DI>(), bytes)));
}
HWY_INLINE VF SignedRows(const uint8_t* bytes) {
  const hn::Rebind<int8_t, DI> d8;
  return hn::ConvertTo(DF(),
                       hn::PromoteTo(DI(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(bytes))));
}

// Whether codes stand for the entries of a table.
template <WeightType kType>
inline constexpr bool kIsLookup = kType == WeightType::kIQ4_NL || kType == WeightType::kIQ4_XS;

// kNibbleValues twice, so that the fifth bit of an index does not matter.
inline __m512i NibbleTable() {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kNibbleValues));
  return _mm512_cvtepi8_epi16(_mm256_broadcastsi128_si256(bytes));
}

// Integer sums of a run with kTokens tokens, in two chains: of halves where those have scales of
// their own, else of even and odd pairs.
template <WeightType kType, int kTokens>
struct RunSums {
  static constexpr WovenForm kForm = WovenFormOf(kType);
  using DU = hn::RebindToUnsigned<DI>;
  using VU = hn::Vec<DU>;

  const int16_t* inputs[kTokens];  // of the run
  VI chains[kTokens][2];

  // Both halves of a dword & mask.
  static HWY_INLINE VU Both(VU words, uint32_t mask) {
    return hn::And(words, hn::Set(DU(), mask * 0x00010001));
  }
  static HWY_INLINE VU Load(const uint8_t* words, int v) {
    return hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(words + 64 * v));
  }
  HWY_INLINE void Add(int p, VU pair) {
    const int chain = kForm.bits == 6 ? p / 8 : p % 2;
    for (int t = 0; t < kTokens; ++t) {
      AddPairOf(chains[t][chain], hn::BitCast(DI(), pair), inputs[t] + 2 * p);
    }
  }
  // The low four bits of both halves, as the type has them. A lookup sees no others.
  static HWY_INLINE VU FourBits(VU words) {
    if constexpr (kIsLookup<kType>) {
      return VU{_mm512_permutexvar_epi16(words.raw, NibbleTable())};
    } else {
      return Both(words, 15);
    }
  }
  HWY_INLINE void AddFour(const uint8_t* from) {
    for (int v = 0; v < 4; ++v) {
      const VU words = Load(from, v);
      Add(4 * v, FourBits(words));
      Add(4 * v + 1, FourBits(hn::ShiftRight<4>(words)));
      Add(4 * v + 2, FourBits(hn::ShiftRight<8>(words)));
      Add(4 * v + 3, FourBits(hn::ShiftRight<12>(words)));
    }
  }
  // Dword v of five bits; returns the bit of pair 15 together with those before.
  template <int v>
  HWY_INLINE VU AddFifth(const uint8_t* from, VU last) {
    const VU words = Load(from, v);
    Add(3 * v, Both(words, 31));
    Add(3 * v + 1, Both(hn::ShiftRight<5>(words), 31));
    Add(3 * v + 2, Both(hn::ShiftRight<10>(words), 31));
    return hn::OrAnd(last, hn::ShiftRight<15 - v>(words), hn::Set(DU(), 0x00010001u << v));
  }
  HWY_INLINE void AddFive(const uint8_t* from) {
    VU last = AddFifth<0>(from, hn::Zero(DU()));
    last = AddFifth<1>(from, last);
    last = AddFifth<2>(from, last);
    last = AddFifth<3>(from, last);
    Add(15, AddFifth<4>(from, last));
  }
  HWY_INLINE void AddSix(const uint8_t* from) {
    for (int first = 0; first < 16; first += 8, from += 192) {
      const VU words[3] = {Load(from, 0), Load(from, 1), Load(from, 2)};
      for (int v = 0; v < 3; ++v) {
        Add(first + 2 * v, Both(words[v], 63));
        Add(first + 2 * v + 1, Both(hn::ShiftRight<6>(words[v]), 63));
      }
      const VU high = hn::Set(DU(), 0x00300030);
      const VU low6 = Both(hn::ShiftRight<12>(words[0]), 15);
      const VU low7 = Both(hn::ShiftRight<12>(words[1]), 15);
      Add(first + 6, hn::OrAnd(low6, hn::ShiftRight<8>(words[2]), high));
      Add(first + 7, hn::OrAnd(low7, hn::ShiftRight<10>(words[2]), high));
    }
  }
  // The run from `column` on. Codes of six bits are off by 32: their sums begin with what that
  // adds.
  HWY_INLINE RunSums(const uint8_t* codes, const RoundedInput* from, size_t column) {
    const DI d;
    for (int t = 0; t < kTokens; ++t) {
      inputs[t] = from[t].codes + column;
      for (int chain = 0; chain < 2; ++chain) {
        chains[t][chain] = hn::Zero(d);
        if constexpr (kForm.bits != 6) continue;
        const VI sum = hn::Set(d, from[t].half_sums[column / 16 + chain]);
        chains[t][chain] = hn::Sub(hn::Zero(d), hn::ShiftLeft<5>(sum));
      }
    }
    if constexpr (kForm.bits == 4) AddFour(codes);
    if constexpr (kForm.bits == 5) AddFive(codes);
    if constexpr (kForm.bits == 6) AddSix(codes);
  }
  HWY_INLINE VF Floats(int t) const {
    return hn::ConvertTo(DF(), hn::Add(chains[t][0], chains[t][1]));
  }
};

// Whether lines are fetched before each run, not before each block. On a Zen 4 core Q6_K reads 44
// GB/s in place of 40 then (two threads); Q4_K and Q5_K fall from 46 to 29, since GCC 12 keeps less
// in registers.
template <WeightType kType>
inline constexpr bool kAheadByRun = kType == WeightType::kQ6K;

// A block of a type with blocks of 32.
template <WeightType kType, int kTokens>
HWY_INLINE void AddWovenShort(const uint8_t* block, const RoundedInput* inputs, size_t b,
                              VF (&sums)[kTokens]) {
  constexpr WovenForm kForm = WovenFormOf(kType);
  constexpr bool kMin = kForm.fields == 64;
  const DF df;
  const RunSums<kType, kTokens> run(block + kForm.fields, inputs, b * 32);
  const VF scale = WidenRows(block);
  for (int t = 0; t < kTokens; ++t) {
    VF dot = run.Floats(t);
    const VF sum = hn::Set(df, inputs[t].sums[b]);
    if constexpr (kMin) {
      dot = hn::MulAdd(dot, scale, hn::Mul(sum, WidenRows(block + 32)));
    } else if constexpr (kIsLookup<kType>) {
      dot = hn::Mul(dot, scale);
    } else {
      dot = hn::Mul(hn::NegMulAdd(sum, hn::Set(df, kForm.bits == 5 ? 16.0f : 8.0f), dot), scale);
    }
    sums[t] = hn::MulAdd(dot, hn::Set(df, inputs[t].scales[b]), sums[t]);
  }
}

// A block of a type with blocks of 256.
template <WeightType kType, int kTokens>
HWY_INLINE void AddWovenLong(const uint8_t* block, const RoundedInput* inputs, size_t b,
                             const ReadAheadOf& ahead, VF (&sums)[kTokens]) {
  constexpr WovenForm kForm = WovenFormOf(kType);
  constexpr bool kMin = kForm.fields == 64;
  const DF df;
  VF dots[kTokens], minima[kTokens];
  for (int t = 0; t < kTokens; ++t) dots[t] = minima[t] = hn::Zero(df);
  const uint8_t* run = block + kForm.fields;
  for (size_t r = 0; r < 8; ++r, run += kForm.run_bytes()) {
    if constexpr (kAheadByRun<kType>) ahead.template Bytes<kForm.run_bytes()>(run);
    const RunSums<kType, kTokens> products(run + kForm.scales, inputs, b * 256 + r * 32);
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (kMin) {
        dots[t] = hn::MulAdd(products.Floats(t), UnsignedRows(run), dots[t]);
        minima[t] =
            hn::MulAdd(UnsignedRows(run + 16), hn::Set(df, inputs[t].sums[b * 8 + r]), minima[t]);
      } else if constexpr (kIsLookup<kType>) {
        dots[t] = hn::MulAdd(products.Floats(t), SignedRows(run), dots[t]);
      } else {
        const VI(&halves)[2] = products.chains[t];
        dots[t] = hn::MulAdd(hn::ConvertTo(df, halves[0]), SignedRows(run), dots[t]);
        dots[t] = hn::MulAdd(hn::ConvertTo(df, halves[1]), SignedRows(run + 16), dots[t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    VF value = hn::Mul(dots[t], WidenRows(block));
    if constexpr (kMin) value = hn::NegMulAdd(minima[t], WidenRows(block + 32), value);
    sums[t] = hn::MulAdd(value, hn::Set(df, inputs[t].scales[b]), sums[t]);
  }
}

template <WeightType kType, int kTokens>
void WovenTokens(const WeightMatrix& matrix, int64_t begin, int64_t end, const RoundedInput* inputs,
                 float* out, ptrdiff_t out_stride) {
  constexpr WovenForm kForm = WovenFormOf(kType);
  const size_t num_blocks = static_cast<size_t>(matrix.cols) / kForm.block;
  const size_t band_bytes = num_blocks * kForm.block_bytes();
  const auto first = static_cast<size_t>(begin / kBandRows);
  const auto last = static_cast<size_t>(end / kBandRows);
  const auto* block = reinterpret_cast<const uint8_t*>(matrix.woven) + first * band_bytes;
  ReadAheadOf ahead(block, (last - first) * band_bytes);
  for (size_t band = first; band < last; ++band, out += kBandRows) {
    VF sums[kTokens];
    for (int t = 0; t < kTokens; ++t) sums[t] = hn::Zero(DF());
    ahead.Start(block, band_bytes);
    for (size_t b = 0; b < num_blocks; ++b, block += kForm.block_bytes()) {
      if constexpr (!kAheadByRun<kType>) ahead.template Bytes<kForm.block_bytes()>(block);
      if constexpr (kForm.block == 32) {
        AddWovenShort<kType>(block, inputs, b, sums);
      } else {
        AddWovenLong<kType>(block, inputs, b, ahead, sums);
      }
    }
    for (int t = 0; t < kTokens; ++t) hn::StoreU(sums[t], DF(), out + t * out_stride);
  }
}

template <WeightType kType>
void MultiplyWoven(const WeightMatrix& matrix, int64_t begin, int64_t end,
                   const RoundedInput* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  static_assert(kMaxRowTokens == 4);
  switch (num_tokens) {
    case 1:
      return WovenTokens<kType, 1>(matrix, begin, end, inputs, out, out_stride);
    case 2:
      return WovenTokens<kType, 2>(matrix, begin, end, inputs, out, out_stride);
    case 3:
      return WovenTokens<kType, 3>(matrix, begin, end, inputs, out, out_stride);
    default:
      return WovenTokens<kType, 4>(matrix, begin, end, inputs, out, out_stride);
  }
}

#else

// No gain was measured elsewhere: rows stay as they are stored.
template <WeightType kType>
inline constexpr std::nullptr_t MultiplyWoven = nullptr;

#endif  // AVX-512 VNNI

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
