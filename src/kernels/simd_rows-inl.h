// One number per row from vectors of up to four rows: largest lanes and sums, for every target. A
// row's result does not depend on how many rows there are.
// Included once per target; the guard toggles as Highway asks.

#if defined(VARVE_KERNELS_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_ROWS_INL_H_
#undef VARVE_KERNELS_SIMD_ROWS_INL_H_
#else
#define VARVE_KERNELS_SIMD_ROWS_INL_H_
#endif

#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// What becomes of four rows: [4], 16-byte aligned.
inline constexpr int kReducedRows = 4;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Lanes of 128 bits become (row 0, 1, 2, 3), then the lanes are combined: a third of the work of
// one row after the other.
template <class Combine>
HWY_INLINE __m128i ReduceRows(__m512i r0, __m512i r1, __m512i r2, __m512i r3, Combine&& combine) {
  const __m512i r01 = combine(_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
  const __m512i r23 = combine(_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
  const __m512i all = combine(_mm512_unpacklo_epi64(r01, r23), _mm512_unpackhi_epi64(r01, r23));
  const __m512i half = combine(all, _mm512_shuffle_i64x2(all, all, 0x4E));
  return _mm512_castsi512_si128(combine(half, _mm512_shuffle_i64x2(half, half, 0xB1)));
}
HWY_INLINE __m512i Bits(VF v) { return _mm512_castps_si512(v.raw); }
HWY_INLINE __m512i Bits(VI v) { return v.raw; }

template <int kRows, class V, class Combine>
HWY_INLINE void ReduceAndStore(const V (&rows)[kRows], void* out, Combine&& combine) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i row[kReducedRows] = {Bits(rows[0]),
                                     kRows > 1 ? Bits(rows[kRows > 1 ? 1 : 0]) : zero,
                                     kRows > 2 ? Bits(rows[kRows > 2 ? 2 : 0]) : zero,
                                     kRows > 3 ? Bits(rows[kRows > 3 ? 3 : 0]) : zero};
  _mm_store_si128(static_cast<__m128i*>(out), ReduceRows(row[0], row[1], row[2], row[3], combine));
}
#endif

// Largest lanes of numbers that are not negative.
template <int kRows>
HWY_INLINE void StoreRowMaxima(const VF (&rows)[kRows], float* out) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // They sort like integers.
  ReduceAndStore(rows, out, [](__m512i a, __m512i b) HWY_ATTR { return _mm512_max_epi32(a, b); });
#else
  for (int r = 0; r < kRows; ++r) out[r] = hn::GetLane(hn::MaxOfLanes(DF(), rows[r]));
#endif
}

template <int kRows>
HWY_INLINE void StoreRowSums(const VI (&rows)[kRows], int32_t* out) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  ReduceAndStore(rows, out, [](__m512i a, __m512i b) HWY_ATTR { return _mm512_add_epi32(a, b); });
#else
  for (int r = 0; r < kRows; ++r) out[r] = hn::GetLane(hn::SumOfLanes(DI(), rows[r]));
#endif
}

template <int kRows>
HWY_INLINE void StoreRowSums(const VF (&rows)[kRows], float* out) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  ReduceAndStore(rows, out, [](__m512i a, __m512i b) HWY_ATTR {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
  });
#else
  for (int r = 0; r < kRows; ++r) out[r] = hn::GetLane(hn::SumOfLanes(DF(), rows[r]));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
