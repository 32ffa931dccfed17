// The level bytes of a cell of turned codes, and their dot product with signed bytes, for every
// target. See turned_kernels.h for the layout.
// Included once per target by simd_turned.cc; the guard toggles as Highway asks.

#if defined(VARVE_KERNELS_SIMD_TURNED_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_TURNED_CODES_INL_H_
#undef VARVE_KERNELS_SIMD_TURNED_CODES_INL_H_
#else
#define VARVE_KERNELS_SIMD_TURNED_CODES_INL_H_
#endif

#include <utility>

#include "kernels/simd_primitives-inl.h"
#include "kernels/turned_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Query heads that share one pass over a strip. The accumulators of four fit everywhere: without a
// byte dot product they are the ends of short chains, and two vectors of them do.
inline constexpr int kTurnedRows = 4;

// acc[i] += u[4i] s[4i] + … + u[4i + 3] s[4i + 3]: bytes u < 128 unsigned, s > -128 signed. Exact:
// two products fit 16 bits.
HWY_INLINE VI DotSmall(VI acc, VI u, VI s) {
#if HWY_TARGET == HWY_AVX3
  const __m512i pairs = _mm512_maddubs_epi16(u.raw, s.raw);
  return VI{_mm512_add_epi32(acc.raw, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#elif HWY_TARGET == HWY_AVX2
  const __m256i pairs = _mm256_maddubs_epi16(u.raw, s.raw);
  return VI{_mm256_add_epi32(acc.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#elif HWY_TARGET == HWY_SSE4
  const __m128i pairs = _mm_maddubs_epi16(u.raw, s.raw);
  return VI{_mm_add_epi32(acc.raw, _mm_madd_epi16(pairs, _mm_set1_epi16(1)))};
#else
  return DotBytes(acc, u, s);
#endif
}

// The planes of a cell as vectors of level bytes. Lines are loaded where they are used, again for
// every plane: loads cost less than registers.
template <int kBits>
class TurnedCell {
 public:
  using D8 = hn::Repartition<uint8_t, DI>;

  // For the lanes from `lane` on of every line.
  HWY_INLINE TurnedCell(const std::byte* cell, size_t lane) : lanes_(cell + 4 * lane) {}

  // Of the bytes that K multiplies, and of the signed levels for V.
  static HWY_INLINE VI ByteTable() { return LoadTable(kTurnedBytes<kBits>.data()); }
  static HWY_INLINE VI SignedTable() { return LoadTable(kTurnedSigned<kBits>.data()); }

  template <int kPlane>
  HWY_INLINE VI Levels(VI table) const {
#if HWY_TARGET == HWY_AVX3_DL
    // The table repeats itself up to 6 bits of index: what lies above a code may stay.
    return VI{_mm512_permutexvar_epi8(Codes<kPlane>().raw, table.raw)};
#else
    const VI code = hn::And(Codes<kPlane>(), hn::Set(DI(), 0x01010101 * ((1 << kBits) - 1)));
    return hn::BitCast(DI(),
                       hn::TableLookupBytes(hn::BitCast(D8(), table), hn::BitCast(D8(), code)));
#endif
  }

 private:
  static HWY_INLINE VI LoadTable(const void* table) {
#if HWY_TARGET == HWY_AVX3_DL
    return VI{_mm512_load_si512(table)};
#else
    return hn::BitCast(DI(), hn::LoadDup128(D8(), static_cast<const uint8_t*>(table)));
#endif
  }

  // Codes in the low bits of each byte, anything above them.
  template <int kPlane>
  HWY_INLINE VI Codes() const {
    if constexpr (kBits == 4) {
      return Shifted<kPlane % 2 * 4>(Line(kPlane / 2));
    } else if constexpr (kBits == 2) {
      return Shifted<kPlane % 4 * 2>(Line(kPlane / 4));
    } else if constexpr (kPlane < 6) {
      return Shifted<kPlane % 2 * 3>(Line(kPlane / 2));
    } else {
      const VI low = Shifted<6>(Line(kPlane == 6 ? 0 : 2));
      // The high bit, brought to bit 2.
      const VI high = Shifted<kPlane - 2>(Line(1));
      const VI low_bits = hn::Set(DI(), 0x03030303);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
      return VI{_mm512_ternarylogic_epi32(low_bits.raw, low.raw, high.raw, 0xCA)};
#else
      return hn::Or(hn::And(low_bits, low), hn::AndNot(low_bits, high));
#endif
    }
  }

  template <int kCount>
  static HWY_INLINE VI Shifted(VI v) {
    if constexpr (kCount == 0) return v;
    return hn::ShiftRight<kCount>(v);
  }

  HWY_INLINE VI Line(int i) const { return LoadI32(lanes_ + 64 * i); }

  const std::byte* lanes_;
};

// run.template operator()<i>() for i = 0 … kCount - 1: a loop that is unrolled for sure, so that
// accumulators stay in registers.
template <class Run, int... kIndex>
HWY_INLINE void Unrolled(Run&& run, std::integer_sequence<int, kIndex...>) {
  (run.template operator()<kIndex>(), ...);
}
template <int kCount, class Run>
HWY_INLINE void Unrolled(Run&& run) {
  Unrolled(run, std::make_integer_sequence<int, kCount>());
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
