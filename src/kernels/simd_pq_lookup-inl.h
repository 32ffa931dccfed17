// Codes of a strip as bytes, and bytes looked up under them, for every target.
// Included once per target by simd_pq.cc; the guard toggles as Highway asks.

#if defined(VARVE_KERNELS_SIMD_PQ_LOOKUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_PQ_LOOKUP_INL_H_
#undef VARVE_KERNELS_SIMD_PQ_LOOKUP_INL_H_
#else
#define VARVE_KERNELS_SIMD_PQ_LOOKUP_INL_H_
#endif

#include "kernels/pq_kernels.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Tokens of one vector of bytes: the widest that a page of that size fills.
template <int kTokens>
using TokenBytes = hn::CappedTag<uint8_t, kTokens>;
// The same vector as 32-bit lanes.
template <class D8>
using LanesOf = hn::Repartition<int32_t, D8>;

// The codes of sub-space m for Lanes(d) tokens from `token` on.
template <int kBits, class D8>
HWY_INLINE hn::Vec<D8> LoadPqCodes(D8 d, const PqShape& shape, const uint8_t* strip, int m,
                                   int token) {
  const size_t page_tokens = static_cast<size_t>(shape.page_tokens);
  const uint8_t* base = strip + 2 * page_tokens + token;
  if constexpr (kBits == 8) {
    return hn::LoadU(d, base + static_cast<size_t>(m) * page_tokens);
  } else {
    const auto pair = hn::LoadU(d, base + static_cast<size_t>(m / 2) * page_tokens);
    auto code = m % 2 == 0 ? hn::And(pair, hn::Set(d, 15)) : hn::ShiftRight<4>(pair);
    if constexpr (kBits > 4) {
      constexpr int kPlanes = kBits - 4;
      const uint8_t* planes = strip + shape.plane_offset() +
                              static_cast<size_t>(m) * kPlanes * (page_tokens / 8) + token / 8;
      for (int plane = 0; plane < kPlanes; ++plane) {
        const auto mask = hn::LoadMaskBits(d, planes + plane * (page_tokens / 8));
        const auto bit = hn::Set(d, static_cast<uint8_t>(16 << plane));
        code = hn::Or(code, hn::IfThenElseZero(mask, bit));
      }
    }
    return code;
  }
}

// A table of 2^kBits bytes, in registers where they are wide enough for that. kSigned: what is
// found is byte - 128, as a signed byte.
template <int kBits, bool kSigned, class D8>
class ByteTable {
 public:
  using V = hn::Vec<D8>;

#if HWY_TARGET == HWY_AVX3_DL
  HWY_INLINE explicit ByteTable(const uint8_t* table) {
    if constexpr (kBits == 4) {
      low_[0] = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    } else if constexpr (kBits == 5) {
      low_[0] = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)));
    } else {
      for (int i = 0; i < kRegisters; ++i) low_[i] = _mm512_loadu_si512(table + 64 * i);
    }
    if constexpr (kSigned) {
      for (__m512i& low : low_) low = _mm512_xor_si512(low, _mm512_set1_epi8(-128));
    }
  }

  HWY_INLINE V operator()(V codes) const {
    const __m512i code = Widen(codes);
    if constexpr (kBits == 4) {
      return Narrow(_mm512_shuffle_epi8(low_[0], code));
    } else if constexpr (kBits <= 6) {
      return Narrow(_mm512_permutexvar_epi8(code, low_[0]));
    } else if constexpr (kBits == 7) {
      return Narrow(_mm512_permutex2var_epi8(low_[0], code, low_[1]));
    } else {
      const __m512i below = _mm512_permutex2var_epi8(low_[0], code, low_[1]);
      const __m512i above = _mm512_permutex2var_epi8(low_[2], code, low_[3]);
      return Narrow(_mm512_mask_blend_epi8(_mm512_movepi8_mask(code), below, above));
    }
  }

 private:
  static constexpr int kRegisters = kBits <= 6 ? 1 : kBits == 7 ? 2 : 4;

  static HWY_INLINE __m512i Widen(V v) {
    if constexpr (sizeof(v.raw) == 64) return v.raw;
    if constexpr (sizeof(v.raw) == 32) return _mm512_castsi256_si512(v.raw);
    if constexpr (sizeof(v.raw) == 16) return _mm512_castsi128_si512(v.raw);
  }
  static HWY_INLINE V Narrow(__m512i v) {
    if constexpr (sizeof(V::raw) == 64) return V{v};
    if constexpr (sizeof(V::raw) == 32) return V{_mm512_castsi512_si256(v)};
    if constexpr (sizeof(V::raw) == 16) return V{_mm512_castsi512_si128(v)};
  }

  __m512i low_[kRegisters];
#else
  HWY_INLINE explicit ByteTable(const uint8_t* table) : table_(table) {}

  // Shuffles of 16 bytes; the upper bits of the code choose among them.
  HWY_INLINE V operator()(V codes) const {
    const D8 d;
    const V low = kBits == 4 ? codes : hn::And(codes, hn::Set(d, 15));
    V found = hn::TableLookupBytes(hn::LoadDup128(d, table_), low);
    if constexpr (kBits > 4) {
      const V high = hn::ShiftRight<4>(codes);
      for (int i = 1; i < 1 << (kBits - 4); ++i) {
        const V here = hn::TableLookupBytes(hn::LoadDup128(d, table_ + 16 * i), low);
        found = hn::IfThenElse(hn::Eq(high, hn::Set(d, static_cast<uint8_t>(i))), here, found);
      }
    }
    return kSigned ? hn::Xor(found, hn::Set(d, 0x80)) : found;
  }

 private:
  const uint8_t* table_;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
