// Stored weights as vectors of f32, for every target. Each type is a struct with the size of its
// block and a Visit that decodes one block in registers and calls use.Add<k>(j, w) with N values
// that begin at column j of the row, or use.AddScaled; k (0…3) tells independent chains of sums
// apart. Codes are handled as bytes, 16 at a time, and widened last. Blocks of 32 values get their
// f16 fields as vectors: the caller widens those of four blocks at once, since one at a time costs
// a quarter of the whole product on Zen 4. See scalar_weights.cc for the layouts.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
#endif

#include "base/half.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

using DU16x8 = hn::FixedTag<uint16_t, 8>;
using DU8x16 = hn::FixedTag<uint8_t, 16>;
using DI8x16 = hn::FixedTag<int8_t, 16>;
using VU8x16 = hn::Vec<DU8x16>;
using VI8x16 = hn::Vec<DI8x16>;

inline constexpr size_t kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;  // of a VF

// Tokens that share one pass over a row: as many as chains fit in the register file.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kTokenTile = 4;
#else
inline constexpr int kTokenTile = 2;
#endif

HWY_INLINE uint32_t LoadU32(const uint8_t* from) {
  uint32_t bits;
  __builtin_memcpy(&bits, from, 4);
  return bits;
}

// An f16 in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> BroadcastF16(D d, const uint8_t* from) {
  uint16_t bits;
  __builtin_memcpy(&bits, from, 2);
#if HWY_TARGET == HWY_SSE4
  return hn::Set(d, F16ToF32(bits));
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<uint16_t, D> du16;
  return hn::PromoteTo(d, hn::BitCast(d16, hn::Set(du16, bits)));
#endif
}
HWY_INLINE VF BroadcastF16(const uint8_t* from) { return BroadcastF16(DF(), from); }

// The f16 at `from` and at three further places `step` bytes apart, as f32.
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> FourF16(const uint8_t* from, size_t step) {
  uint64_t bits = 0;
  for (size_t b = 0; b < 4; ++b) {
    uint16_t one;
    __builtin_memcpy(&one, from + b * step, 2);
    bits |= static_cast<uint64_t>(one) << (16 * b);
  }
#if HWY_TARGET == HWY_SSE4
  hwy::float16_t four[4];
  __builtin_memcpy(four, &bits, 8);
  return WidenF16(four);
#else
  const hn::FixedTag<float, 4> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const hn::FixedTag<uint64_t, 1> d64;
  return hn::PromoteTo(d, hn::BitCast(d16, hn::Set(d64, bits)));
#endif
}

// The same, through memory, from where a product takes them to all lanes for nothing; the compiler,
// left alone, shuffles registers, on the ports that widen the codes.
HWY_INLINE void WidenFour(const uint8_t* from, size_t step, float (&out)[4]) {
  hn::StoreU(FourF16(from, step), hn::FixedTag<float, 4>(), out);
  __asm__("" : "+m"(out));
}

HWY_INLINE VU8x16 LoadBytes(const uint8_t* from) { return hn::LoadU(DU8x16(), from); }

HWY_INLINE VU8x16 LowNibblesOf(VU8x16 v) { return hn::And(v, hn::Set(DU8x16(), 15)); }
// The bits of every byte, shifted right; what comes in from the neighbour is for the caller to
// mask.
template <int kBits>
HWY_INLINE VU8x16 ShiftBytesRight(VU8x16 v) {
  return hn::BitCast(DU8x16(), hn::ShiftRight<kBits>(hn::BitCast(DU16x8(), v)));
}
HWY_INLINE VU8x16 HighNibblesOf(VU8x16 v) { return LowNibblesOf(ShiftBytesRight<4>(v)); }

// kValue in the bytes whose bit is set in the 16 bits at `from`, else 0.
template <int kValue>
HWY_INLINE VU8x16 BytesFromBits(const uint8_t* from) {
  const DU8x16 d;
  return hn::IfThenElseZero(hn::LoadMaskBits(d, from), hn::Set(d, kValue));
}

// Lanes kFirst … kFirst + N - 1 of signed bytes as f32.
template <size_t kFirst, class V>  // V is VI8x16; a template, so that one branch is compiled
HWY_INLINE VF WidenCodes(V codes) {
  const DI8x16 d;
  if constexpr (kFirst != 0) codes = hn::ShiftRightBytes<kFirst>(d, codes);
  if constexpr (kLanes == 16) {
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), codes));
  } else if constexpr (kLanes == 8) {
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LowerHalf(codes)));
  } else {
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LowerHalf(hn::LowerHalf(codes))));
  }
}

// 32 centred codes of one scale, at columns i and i + 16, to chains k and k + 1.
template <int k, class Use>
HWY_INLINE void AddScaledCodes(size_t i, VI8x16 a, VI8x16 b, VF scale, Use& use) {
  use.template AddScaled<k>(i, WidenCodes<0>(a), i + 16, WidenCodes<0>(b), scale);
  if constexpr (kLanes <= 8) {
    use.template AddScaled<k + 1>(i + 8, WidenCodes<8>(a), i + 24, WidenCodes<8>(b), scale);
  }
  if constexpr (kLanes == 4) {
    use.template AddScaled<k>(i + 4, WidenCodes<4>(a), i + 20, WidenCodes<4>(b), scale);
    use.template AddScaled<k + 1>(i + 12, WidenCodes<12>(a), i + 28, WidenCodes<12>(b), scale);
  }
}

// w = code * scale, or code * scale + offset; exact but for the one rounding of the offset.
struct Scaled {
  VF scale;
  HWY_INLINE VF operator()(VF code) const { return hn::Mul(code, scale); }
};
struct Shifted {
  VF scale;
  VF offset;
  HWY_INLINE VF operator()(VF code) const { return hn::MulAdd(code, scale, offset); }
};

// 16 codes at column i, through `map`, to chain k.
template <int k, class Map, class Use>
HWY_INLINE void AddCodes(size_t i, VI8x16 codes, const Map& map, Use& use) {
  use.template Add<k>(i, map(WidenCodes<0>(codes)));
  if constexpr (kLanes <= 8) use.template Add<k>(i + 8, map(WidenCodes<8>(codes)));
  if constexpr (kLanes == 4) {
    use.template Add<k>(i + 4, map(WidenCodes<4>(codes)));
    use.template Add<k>(i + 12, map(WidenCodes<12>(codes)));
  }
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// The low four bits of each lane, less a centre: the permutation looks at no others, so mask,
// centring and conversion are one instruction.
template <int kCentre>
HWY_INLINE VF NibblesToFloat(VI v) {
  const VF table = hn::Iota(DF(), static_cast<float>(-kCentre));
  return VF{_mm512_permutexvar_ps(v.raw, table.raw)};
}
#endif

// 16 bytes: their low nibbles at column i to chain k, their high ones at column j to chain k + 1.
template <int k, class Low, class High, class Use>
HWY_INLINE void AddNibbles(size_t i, size_t j, VU8x16 bytes, const Low& low, const High& high,
                           Use& use) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const VI wide = hn::PromoteTo(DI(), bytes);
  use.template Add<k>(i, low(NibblesToFloat<0>(wide)));
  use.template Add<k + 1>(j, high(NibblesToFloat<0>(hn::ShiftRight<4>(wide))));
#else
  const DI8x16 d;
  AddCodes<k>(i, hn::BitCast(d, LowNibblesOf(bytes)), low, use);
  AddCodes<k + 1>(j, hn::BitCast(d, HighNibblesOf(bytes)), high, use);
#endif
}

// The f16 fields of a block of 32 values; no offset: it is 0.
struct BlockScale {
  VF scale;
  VF offset;
};

struct BlockQ8_0 {
  static constexpr size_t kBytes = 34;
  static constexpr bool kOffset = false;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const DI8x16 d;
    AddScaledCodes<k>(i, hn::BitCast(d, LoadBytes(block + 2)),
                      hn::BitCast(d, LoadBytes(block + 18)), by.scale, use);
  }
};

struct BlockQ4_0 {
  static constexpr size_t kBytes = 18;
  static constexpr bool kOffset = false;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const VU8x16 bytes = LoadBytes(block + 2);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const VI wide = hn::PromoteTo(DI(), bytes);
    use.template AddScaled<k>(i, NibblesToFloat<8>(wide), i + 16,
                              NibblesToFloat<8>(hn::ShiftRight<4>(wide)), by.scale);
#else
    const DI8x16 d;
    const VI8x16 centre = hn::Set(d, 8);
    AddScaledCodes<k>(i, hn::Sub(hn::BitCast(d, LowNibblesOf(bytes)), centre),
                      hn::Sub(hn::BitCast(d, HighNibblesOf(bytes)), centre), by.scale, use);
#endif
  }
};

struct BlockQ4_1 {
  static constexpr size_t kBytes = 20;
  static constexpr bool kOffset = true;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const Shifted map = {by.scale, by.offset};
    AddNibbles<k>(i, i + 16, LoadBytes(block + 4), map, map, use);
  }
};

// The nibbles and fifth bits of Q5_0 and Q5_1.
struct FiveBits {
  VI8x16 low;
  VI8x16 high;
  explicit HWY_INLINE FiveBits(const uint8_t* fifth) {
    const DI8x16 d;
    const VU8x16 nibbles = LoadBytes(fifth + 4);
    low = hn::BitCast(d, hn::Or(LowNibblesOf(nibbles), BytesFromBits<16>(fifth)));
    high = hn::BitCast(d, hn::Or(HighNibblesOf(nibbles), BytesFromBits<16>(fifth + 2)));
  }
};

struct BlockQ5_0 {
  static constexpr size_t kBytes = 22;
  static constexpr bool kOffset = false;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const FiveBits codes(block + 2);
    const VI8x16 centre = hn::Set(DI8x16(), 16);
    AddScaledCodes<k>(i, hn::Sub(codes.low, centre), hn::Sub(codes.high, centre), by.scale, use);
  }
};

struct BlockQ5_1 {
  static constexpr size_t kBytes = 24;
  static constexpr bool kOffset = true;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const FiveBits codes(block + 4);
    const Shifted map = {by.scale, by.offset};
    AddCodes<k>(i, codes.low, map, use);
    AddCodes<k + 1>(i + 16, codes.high, map, use);
  }
};

// The scales of the runs of a block of 256 values, and what is added to a run (-minimum).
struct RunScales {
  alignas(64) float scale[16];
  alignas(64) float offset[16];
  // As WidenFour: a scale in memory goes to all lanes for nothing.
  HWY_INLINE void KeepInMemory() { __asm__("" : "+m"(*this)); }
};

// kCount floats: bytes * kSign * the f16 at `factor`.
template <class T, size_t kCount, int kSign>
HWY_INLINE void ScaleBytes(const T* bytes, const uint8_t* factor, float* out) {
  const hn::CappedTag<float, kCount> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<T, decltype(df)> db;
  auto scale = BroadcastF16(df, factor);
  if constexpr (kSign < 0) scale = hn::Neg(scale);
  for (size_t i = 0; i < kCount; i += hn::Lanes(df)) {
    const auto values = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(db, bytes + i)));
    hn::StoreU(hn::Mul(values, scale), df, out + i);
  }
}

// Of Q4_K and Q5_K: f16 scale, f16 minimum, then 8 scales and 8 minima of 6 bits in 12 bytes.
HWY_INLINE void UnpackRunScales(const uint8_t* block, RunScales& scales) {
  const uint32_t a = LoadU32(block + 4);
  const uint32_t b = LoadU32(block + 8);
  const uint32_t c = LoadU32(block + 12);
  // Written as they will be read: narrower stores would not be forwarded to the vector load.
  const uint64_t low = (uint64_t{b} << 32 | a) & 0x3F3F3F3F3F3F3F3F;
  const uint64_t high = ((uint64_t{c >> 4} << 32 | c) & 0x0F0F0F0F0F0F0F0F) |
                        ((uint64_t{b} << 32 | a) >> 2 & 0x3030303030303030);
  const uint64_t bytes[2] = {(low & 0xFFFFFFFF) | high << 32,
                             low >> 32 | (high & 0xFFFFFFFF00000000)};
  ScaleBytes<uint8_t, 8, 1>(reinterpret_cast<const uint8_t*>(bytes), block, scales.scale);
  ScaleBytes<uint8_t, 8, -1>(reinterpret_cast<const uint8_t*>(bytes + 1), block + 2, scales.offset);
  scales.KeepInMemory();
}

HWY_INLINE Shifted RunMap(const RunScales& scales, size_t run) {
  return {hn::Set(DF(), scales.scale[run]), hn::Set(DF(), scales.offset[run])};
}

struct BlockQ4K {
  static constexpr size_t kBytes = 144;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    UnpackRunScales(block, scales);
    for (size_t pair = 0; pair < 4; ++pair) {
      const uint8_t* nibbles = block + 16 + pair * 32;
      const Shifted low = RunMap(scales, 2 * pair);
      const Shifted high = RunMap(scales, 2 * pair + 1);
      const size_t at = i + pair * 64;
      AddNibbles<0>(at, at + 32, LoadBytes(nibbles), low, high, use);
      AddNibbles<2>(at + 16, at + 48, LoadBytes(nibbles + 16), low, high, use);
    }
  }
};

struct BlockQ5K {
  static constexpr size_t kBytes = 176;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    UnpackRunScales(block, scales);
    // Two bits a turn, at the bottom of each byte.
    VU8x16 fifth[2] = {LoadBytes(block + 16), LoadBytes(block + 32)};
    for (size_t pair = 0; pair < 4; ++pair) {
      const uint8_t* nibbles = block + 48 + pair * 32;
      const Shifted low = RunMap(scales, 2 * pair);
      const Shifted high = RunMap(scales, 2 * pair + 1);
      const size_t at = i + pair * 64;
      Half<0>(at, LoadBytes(nibbles), fifth[0], low, high, use);
      Half<2>(at + 16, LoadBytes(nibbles + 16), fifth[1], low, high, use);
    }
  }

 private:
  template <int k, class Use>
  static HWY_INLINE void Half(size_t at, VU8x16 nibbles, VU8x16& fifth, const Shifted& low,
                              const Shifted& high, Use& use) {
    const DU8x16 d;
    const VU8x16 bit = hn::Set(d, 16);
    const VU8x16 shifted = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(DU16x8(), fifth)));
    const VU8x16 shifted_less = hn::BitCast(d, hn::ShiftLeft<3>(hn::BitCast(DU16x8(), fifth)));
    const DI8x16 di;
    AddCodes<k>(at, hn::BitCast(di, hn::Or(LowNibblesOf(nibbles), hn::And(shifted, bit))), low,
                use);
    AddCodes<k + 1>(at + 32,
                    hn::BitCast(di, hn::Or(HighNibblesOf(nibbles), hn::And(shifted_less, bit))),
                    high, use);
    fifth = ShiftBytesRight<2>(fifth);
  }
};

struct BlockQ6K {
  static constexpr size_t kBytes = 210;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    ScaleBytes<int8_t, 16, 1>(reinterpret_cast<const int8_t*>(block + 192), block + 208,
                              scales.scale);
    scales.KeepInMemory();
    for (size_t half = 0; half < 2; ++half) {
      for (size_t part = 0; part < 2; ++part) {  // of the 32 bytes of high bits
        const uint8_t* low = block + half * 64 + part * 16;
        const VU8x16 high = LoadBytes(block + 128 + half * 32 + part * 16);
        const size_t run = half * 8 + part;
        const size_t at = i + run * 16;
        const VU8x16 a = LoadBytes(low);
        const VU8x16 b = LoadBytes(low + 32);
        const auto up = [](VU8x16 v) HWY_ATTR {
          return hn::BitCast(DU8x16(), hn::ShiftLeft<4>(hn::BitCast(DU16x8(), v)));
        };
        Sixteen<0>(at, LowNibblesOf(a), up(high), scales.scale[run], use);
        Sixteen<1>(at + 32, LowNibblesOf(b), up(ShiftBytesRight<2>(high)), scales.scale[run + 2],
                   use);
        Sixteen<2>(at + 64, HighNibblesOf(a), high, scales.scale[run + 4], use);
        Sixteen<3>(at + 96, HighNibblesOf(b), ShiftBytesRight<2>(high), scales.scale[run + 6], use);
      }
    }
  }

 private:
  // The high bits are bits 4 and 5 of `high`.
  template <int k, class Use>
  static HWY_INLINE void Sixteen(size_t at, VU8x16 low, VU8x16 high, float scale, Use& use) {
    const DI8x16 d;
    const VU8x16 code = hn::Or(low, hn::And(high, hn::Set(DU8x16(), 0x30)));
    AddCodes<k>(at, hn::Sub(hn::BitCast(d, code), hn::Set(d, 32)), Scaled{hn::Set(DF(), scale)},
                use);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
