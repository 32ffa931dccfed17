// Stored weights as vectors of f32, for every target. Each type is a struct with the size of its
// block and Visit(block, i, use): it decodes one block in registers and calls use.Add<k>(j, w) with
// N values that begin at column j of the row, i being the column of the block. k (0…3) tells
// independent chains of sums apart. Codes are handled as bytes, 16 at a time, and widened last.
// See scalar_weights.cc for the layouts.

#if defined(VARVE_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
#undef VARVE_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
#else
#define VARVE_KERNELS_SIMD_WEIGHTS_BLOCKS_INL_H_
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

// 16 bytes: their low nibbles at column i to chain k, their high ones at column j to chain k + 1.
template <int k, int kCentre, class Low, class High, class Use>
HWY_INLINE void AddNibbles(size_t i, size_t j, VU8x16 bytes, const Low& low, const High& high,
                           Use& use) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // The permutation looks at four bits of each lane: mask, centring and conversion in one.
  const DF df;
  const VF table = hn::Iota(df, static_cast<float>(-kCentre));
  const VI wide = hn::PromoteTo(DI(), bytes);
  use.template Add<k>(i, low(VF{_mm512_permutexvar_ps(wide.raw, table.raw)}));
  use.template Add<k + 1>(j,
                          high(VF{_mm512_permutexvar_ps(hn::ShiftRight<4>(wide).raw, table.raw)}));
#else
  const DI8x16 d;
  const VI8x16 centre = hn::Set(d, kCentre);
  AddCodes<k>(i, hn::Sub(hn::BitCast(d, LowNibblesOf(bytes)), centre), low, use);
  AddCodes<k + 1>(j, hn::Sub(hn::BitCast(d, HighNibblesOf(bytes)), centre), high, use);
#endif
}

struct BlockQ8_0 {
  static constexpr size_t kValues = 32;
  static constexpr size_t kBytes = 34;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    const Scaled map = {BroadcastF16(block)};
    const DI8x16 d;
    AddCodes<k>(i, hn::BitCast(d, LoadBytes(block + 2)), map, use);
    AddCodes<k + 1>(i + 16, hn::BitCast(d, LoadBytes(block + 18)), map, use);
  }
};

struct BlockQ4_0 {
  static constexpr size_t kValues = 32;
  static constexpr size_t kBytes = 18;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    const Scaled map = {BroadcastF16(block)};
    AddNibbles<k, 8>(i, i + 16, LoadBytes(block + 2), map, map, use);
  }
};

struct BlockQ4_1 {
  static constexpr size_t kValues = 32;
  static constexpr size_t kBytes = 20;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    const Shifted map = {BroadcastF16(block), BroadcastF16(block + 2)};
    AddNibbles<k, 0>(i, i + 16, LoadBytes(block + 4), map, map, use);
  }
};

// The nibbles and fifth bits of Q5_0 and Q5_1, less a centre.
template <int k, int kCentre, class Map, class Use>
HWY_INLINE void AddFiveBits(const uint8_t* fifth, size_t i, const Map& map, Use& use) {
  const DI8x16 d;
  const VI8x16 centre = hn::Set(d, kCentre);
  const VU8x16 nibbles = LoadBytes(fifth + 4);
  const VU8x16 low = hn::Or(LowNibblesOf(nibbles), BytesFromBits<16>(fifth));
  const VU8x16 high = hn::Or(HighNibblesOf(nibbles), BytesFromBits<16>(fifth + 2));
  AddCodes<k>(i, hn::Sub(hn::BitCast(d, low), centre), map, use);
  AddCodes<k + 1>(i + 16, hn::Sub(hn::BitCast(d, high), centre), map, use);
}

struct BlockQ5_0 {
  static constexpr size_t kValues = 32;
  static constexpr size_t kBytes = 22;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    AddFiveBits<k, 16>(block + 2, i, Scaled{BroadcastF16(block)}, use);
  }
};

struct BlockQ5_1 {
  static constexpr size_t kValues = 32;
  static constexpr size_t kBytes = 24;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    AddFiveBits<k, 0>(block + 4, i, Shifted{BroadcastF16(block), BroadcastF16(block + 2)}, use);
  }
};

// The scales of the runs of a block of 256 values, and what is added to a run (-minimum).
struct RunScales {
  alignas(64) float scale[16];
  alignas(64) float offset[8];
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
  const uint32_t bytes[4] = {a & 0x3F3F3F3F, (c & 0x0F0F0F0F) | ((a >> 2) & 0x30303030),
                             b & 0x3F3F3F3F, ((c >> 4) & 0x0F0F0F0F) | ((b >> 2) & 0x30303030)};
  ScaleBytes<uint8_t, 8, 1>(reinterpret_cast<const uint8_t*>(bytes), block, scales.scale);
  ScaleBytes<uint8_t, 8, -1>(reinterpret_cast<const uint8_t*>(bytes + 2), block + 2, scales.offset);
}

HWY_INLINE Shifted RunMap(const RunScales& scales, size_t run) {
  return {hn::Set(DF(), scales.scale[run]), hn::Set(DF(), scales.offset[run])};
}

struct BlockQ4K {
  static constexpr size_t kValues = 256;
  static constexpr size_t kBytes = 144;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    UnpackRunScales(block, scales);
    for (size_t pair = 0; pair < 4; ++pair) {
      const uint8_t* nibbles = block + 16 + pair * 32;
      const Shifted low = RunMap(scales, 2 * pair);
      const Shifted high = RunMap(scales, 2 * pair + 1);
      const size_t at = i + pair * 64;
      AddNibbles<0, 0>(at, at + 32, LoadBytes(nibbles), low, high, use);
      AddNibbles<2, 0>(at + 16, at + 48, LoadBytes(nibbles + 16), low, high, use);
    }
  }
};

struct BlockQ5K {
  static constexpr size_t kValues = 256;
  static constexpr size_t kBytes = 176;

  template <int k, class Use>
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
  static constexpr size_t kValues = 256;
  static constexpr size_t kBytes = 210;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    ScaleBytes<int8_t, 16, 1>(reinterpret_cast<const int8_t*>(block + 192), block + 208,
                              scales.scale);
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
