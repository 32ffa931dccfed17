// Blocks of Q2_K, Q3_K, IQ4_NL and IQ4_XS decoded, and their fields, for every target; as
// simd_weights_blocks-inl.h for the other types.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_BLOCKS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_BLOCKS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_BLOCKS_INL_H_
#endif

#include "runtime/kernels/scalar_blocks.h"
#include "runtime/kernels/simd_weights_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Bytes below 64, less 32 each: two's complement of six bits, with the sign spread.
HWY_INLINE uint64_t LessThirtyTwo(uint64_t bytes) {
  const uint64_t flipped = bytes ^ 0x2020202020202020;
  return flipped | (flipped & 0x2020202020202020) * 6;
}

// Of Q2_K: the scales and minima of 16 values each, as bytes.
struct BytesQ2K {
  alignas(16) uint8_t scales[16];
  alignas(16) uint8_t minima[16];

  explicit HWY_INLINE BytesQ2K(const uint8_t* block) {
    const VU8x16 both = LoadBytes(block);
    hn::Store(LowNibblesOf(both), DU8x16(), scales);
    hn::Store(HighNibblesOf(both), DU8x16(), minima);
  }
};

// Of Q3_K: the scales of 16 values each, from 12 bytes (UnpackHalfScale).
HWY_INLINE void UnpackHalfScales(const uint8_t* packed, int8_t (&scales)[16]) {
  uint64_t nibbles;
  __builtin_memcpy(&nibbles, packed, 8);
  const uint64_t pairs = LoadU32(packed + 8);
  constexpr uint64_t kNibbles = 0x0F0F0F0F0F0F0F0F;
  constexpr uint64_t kPairs = 0x3030303030303030;
  const uint64_t first =
      LessThirtyTwo((nibbles & kNibbles) | ((pairs << 4 | pairs << 34) & kPairs));
  const uint64_t last = LessThirtyTwo((nibbles >> 4 & kNibbles) | ((pairs | pairs << 30) & kPairs));
  // Stored as they will be read: halves would not be forwarded to a load of both.
  const hn::FixedTag<uint64_t, 2> d;
  const auto both = hn::InterleaveLower(d, hn::Set(d, first), hn::Set(d, last));
  hn::StoreU(hn::BitCast(DI8x16(), both), DI8x16(), scales);
}

// Of IQ4_XS: the scales of eight runs (UnpackLookupScale).
HWY_INLINE void UnpackLookupScales(const uint8_t* block, int8_t (&scales)[8]) {
  uint16_t high;
  __builtin_memcpy(&high, block + 2, 2);
  // Two bits, and four, in every byte.
  uint64_t pairs = high;
  pairs = (pairs | pairs << 24) & 0x000000FF000000FF;
  pairs = (pairs | pairs << 12) & 0x000F000F000F000F;
  pairs = (pairs | pairs << 6) & 0x0303030303030303;
  uint64_t nibbles = LoadU32(block + 4);
  nibbles = (nibbles | nibbles << 16) & 0x0000FFFF0000FFFF;
  nibbles = (nibbles | nibbles << 8) & 0x00FF00FF00FF00FF;
  nibbles = (nibbles | nibbles << 4) & 0x0F0F0F0F0F0F0F0F;
  const uint64_t bytes = LessThirtyTwo(nibbles | pairs << 4);
  __builtin_memcpy(scales, &bytes, 8);
}

// What bytes below 16 stand for in IQ4_NL and IQ4_XS.
HWY_INLINE VI8x16 LookUpBytes(VU8x16 nibbles) {
  const DI8x16 d;
  return hn::TableLookupBytes(hn::LoadU(d, kNibbleValues), hn::BitCast(d, nibbles));
}

struct BlockQ2K {
  static constexpr size_t kBytes = 84;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    RunScales scales;
    const BytesQ2K bytes(block);
    ScaleBytes<uint8_t, 16, 1>(bytes.scales, block + 80, scales.scale);
    ScaleBytes<uint8_t, 16, -1>(bytes.minima, block + 82, scales.offset);
    scales.KeepInMemory();
    for (size_t half = 0; half < 2; ++half) {
      for (size_t part = 0; part < 2; ++part) {  // of the 32 bytes of bit pairs
        const VU8x16 pairs = LoadBytes(block + 16 + half * 32 + part * 16);
        const size_t run = half * 8 + part;
        const size_t at = i + run * 16;
        Sixteen<0>(at, pairs, RunMap(scales, run), use);
        Sixteen<1>(at + 32, ShiftBytesRight<2>(pairs), RunMap(scales, run + 2), use);
        Sixteen<2>(at + 64, ShiftBytesRight<4>(pairs), RunMap(scales, run + 4), use);
        Sixteen<3>(at + 96, ShiftBytesRight<6>(pairs), RunMap(scales, run + 6), use);
      }
    }
  }

 private:
  template <int k, class Use>
  static HWY_INLINE void Sixteen(size_t at, VU8x16 pairs, const Shifted& map, Use& use) {
    const VU8x16 codes = hn::And(pairs, hn::Set(DU8x16(), 3));
    AddCodes<k>(at, hn::BitCast(DI8x16(), codes), map, use);
  }
};

struct BlockQ3K {
  static constexpr size_t kBytes = 110;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    int8_t bytes[16];
    UnpackHalfScales(block + 96, bytes);
    RunScales scales;
    ScaleBytes<int8_t, 16, 1>(bytes, block + 108, scales.scale);
    scales.KeepInMemory();
    for (size_t part = 0; part < 2; ++part) {
      const VU8x16 third = LoadBytes(block + part * 16);
      const auto up = hn::BitCast(DU8x16(), hn::ShiftLeft<2>(hn::BitCast(DU16x8(), third)));
      Half(block + 32 + part * 16, i + part * 16, up, scales.scale + part, use);
      Half(block + 64 + part * 16, i + 128 + part * 16, ShiftBytesRight<2>(third),
           scales.scale + 8 + part, use);
    }
  }

 private:
  // 16 values of each of four runs; their third bits are bits 2 … 5 of `third`.
  template <class Use>
  static HWY_INLINE void Half(const uint8_t* from, size_t at, VU8x16 third, const float* scales,
                              Use& use) {
    const VU8x16 pairs = LoadBytes(from);
    Sixteen<0>(at, pairs, third, scales[0], use);
    Sixteen<1>(at + 32, ShiftBytesRight<2>(pairs), ShiftBytesRight<1>(third), scales[2], use);
    Sixteen<2>(at + 64, ShiftBytesRight<4>(pairs), ShiftBytesRight<2>(third), scales[4], use);
    Sixteen<3>(at + 96, ShiftBytesRight<6>(pairs), ShiftBytesRight<3>(third), scales[6], use);
  }
  template <int k, class Use>
  static HWY_INLINE void Sixteen(size_t at, VU8x16 pairs, VU8x16 third, float scale, Use& use) {
    const DU8x16 d;
    const DI8x16 di;
    const VU8x16 code = hn::Or(hn::And(pairs, hn::Set(d, 3)), hn::And(third, hn::Set(d, 4)));
    AddCodes<k>(at, hn::Sub(hn::BitCast(di, code), hn::Set(di, 4)), Scaled{hn::Set(DF(), scale)},
                use);
  }
};

struct BlockIQ4NL {
  static constexpr size_t kBytes = 18;
  static constexpr bool kOffset = false;

  template <int k, class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, const BlockScale& by, Use& use) {
    const VU8x16 nibbles = LoadBytes(block + 2);
    AddScaledCodes<k>(i, LookUpBytes(LowNibblesOf(nibbles)), LookUpBytes(HighNibblesOf(nibbles)),
                      by.scale, use);
  }
};

struct BlockIQ4XS {
  static constexpr size_t kBytes = 136;

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, size_t i, Use& use) {
    int8_t bytes[8];
    UnpackLookupScales(block, bytes);
    RunScales scales;
    ScaleBytes<int8_t, 8, 1>(bytes, block, scales.scale);
    scales.KeepInMemory();
    for (size_t run = 0; run < 8; ++run) {
      const VU8x16 nibbles = LoadBytes(block + 8 + run * 16);
      AddScaledCodes<0>(i + run * 32, LookUpBytes(LowNibblesOf(nibbles)),
                        LookUpBytes(HighNibblesOf(nibbles)), hn::Set(DF(), scales.scale[run]), use);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
