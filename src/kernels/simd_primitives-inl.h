// What the instruction set supplies and Highway 1.0.3 does not: the byte dot product and the
// narrowing store. Everything above this file is written once.
// Included once per target by simd_kernels.cc; the guard toggles as Highway asks.

#if defined(VARVE_KERNELS_SIMD_PRIMITIVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_PRIMITIVES_INL_H_
#undef VARVE_KERNELS_SIMD_PRIMITIVES_INL_H_
#else
#define VARVE_KERNELS_SIMD_PRIMITIVES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: a vector never spans more than one tile.
using DF = hn::CappedTag<float, kTileTokens>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

// How many rows (query heads) share one pass over a strip. With AVX2 the accumulators of four do
// not always fit the registers, but decoding a strip once for four rows costs less than twice for
// two.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX2
inline constexpr int kRowTile = 4;
#else
inline constexpr int kRowTile = 2;
#endif

// Whether four bytes are multiplied and added by one instruction. Without it 16-bit pairs are
// faster.
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kByteDot = true;
#else
inline constexpr bool kByteDot = false;
#endif

// acc[i] += a[2i] * b[2i] + a[2i+1] * b[2i+1] on 16-bit halves of the lanes. Exact if the sum fits.
// Of vectors of any size.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE V AddPairs(D32 d, V acc, V a, V b) {
#if HWY_TARGET == HWY_AVX3_DL
  (void)d;  // see DotBytes
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
  return acc;
#elif HWY_ARCH_X86
  const hn::RepartitionToNarrow<D32> d16;
  V unused = hn::Zero(d);  // pmaddwd: lane-exact, the second sum stays empty
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, a), hn::BitCast(d16, b), acc, unused);
#else
  const V low =
      hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(a)), hn::ShiftRight<16>(hn::ShiftLeft<16>(b)));
  return hn::Add(acc, hn::Add(low, hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b))));
#endif
}
HWY_INLINE VI DotPairs(VI acc, VI a, VI b) { return AddPairs(DI(), acc, a, b); }

// The first and third, or the second and fourth byte of every lane as 16-bit halves.
HWY_INLINE VI EvenBytesUnsigned(VI v) { return hn::And(v, hn::Set(DI(), 0x00FF00FF)); }
HWY_INLINE VI OddBytesUnsigned(VI v) {
  const hn::RebindToUnsigned<hn::RepartitionToNarrow<DI>> du16;
  return hn::BitCast(DI(), hn::ShiftRight<8>(hn::BitCast(du16, v)));
}
HWY_INLINE VI EvenBytesSigned(VI v) {
  const hn::RepartitionToNarrow<DI> d16;
  return hn::BitCast(DI(), hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, v))));
}
HWY_INLINE VI OddBytesSigned(VI v) {
  const hn::RepartitionToNarrow<DI> d16;
  return hn::BitCast(DI(), hn::ShiftRight<8>(hn::BitCast(d16, v)));
}

// acc[i] += sum over the four bytes j of lane i: (unsigned) u[j] * (signed) s[j]. Exact. Of vectors
// of any size.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE V AddQuads(D32 d, V acc, V u, V s) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway's AVX3_DL implies AVX512-VNNI at run time, but its compile-time attributes name
  // AVX-VNNI instead, so the intrinsic is out of reach.
  (void)d;
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(u.raw), "vm"(s.raw));
  return acc;
#else
  // |sum| <= 4 * 255 * 128.
  const hn::Repartition<uint16_t, D32> du16;
  const hn::Repartition<int16_t, D32> di16;
  const V even = hn::And(u, hn::Set(d, 0x00FF00FF));
  const V odd = hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(du16, u)));
  const V s_even = hn::BitCast(d, hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(di16, s))));
  const V s_odd = hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(di16, s)));
  return AddPairs(d, AddPairs(d, acc, even, s_even), odd, s_odd);
#endif
}
HWY_INLINE VI DotBytes(VI acc, VI u, VI s) { return AddQuads(DI(), acc, u, s); }

// The same with one dword of signed bytes for every lane.
HWY_INLINE VI DotBroadcast(VI acc, VI u, const void* s) {
#if HWY_TARGET == HWY_AVX3_DL
  // A memory operand of the instruction; GCC 12 would otherwise go through a general register.
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(acc.raw)
          : "v"(u.raw), "m"(*static_cast<const int32_t*>(s)));
  return acc;
#else
  int32_t dword;
  __builtin_memcpy(&dword, s, 4);
  return DotBytes(acc, u, hn::Set(DI(), dword));
#endif
}

HWY_INLINE VI LowNibbles(VI v) { return hn::And(v, hn::Set(DI(), 0x0F0F0F0F)); }
HWY_INLINE VI HighNibbles(VI v) { return LowNibbles(hn::ShiftRight<4>(v)); }

// Stores the low byte of every lane.
HWY_INLINE void StoreLowBytes(VI v, uint8_t* to) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(v.raw));
#else
  // A lane that holds a byte never saturates.
  const VI low = hn::And(v, hn::Set(DI(), 0xFF));
  const hn::Rebind<uint8_t, DI> d8;
  hn::StoreU(hn::DemoteTo(d8, low), d8, to);
#endif
}

// Nearest integer, ties to even, of |x| < 2^31. For NaN the low 24 bits are zero: the level of a
// weight is cut to 16 bits, so a NaN counts as 0 there. (Highway's NearestInt makes NaN 2^31 - 1.)
HWY_INLINE VI NearestLevel(VF x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_cvtps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvtps_epi32(x.raw)};
#elif HWY_TARGET == HWY_SSE4
  return VI{_mm_cvtps_epi32(x.raw)};
#else
  return hn::NearestInt(x);
#endif
}

HWY_INLINE VI LoadI32(const void* from) {
  return hn::LoadU(DI(), static_cast<const int32_t*>(from));
}

HWY_INLINE VI BroadcastI32(const void* from) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  VI all;
  __asm__("vpbroadcastd %1, %0" : "=v"(all.raw) : "m"(*static_cast<const int32_t*>(from)));
  return all;
#endif
  int32_t value;
  __builtin_memcpy(&value, from, 4);
  return hn::Set(DI(), value);
}

// f16 -> f32, exact.
HWY_INLINE VF WidenF16(const hwy::float16_t* from) {
  const DF df;
#if HWY_TARGET == HWY_SSE4
  // No F16C, and Highway 1.0.3 reads infinity as 65536 here. The exponent is rebiased by a product,
  // which takes subnormals along; exponent 31 (infinity, NaN) becomes all ones.
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7FFF)));
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::Gt(hn::BitCast(DI(), magnitude), hn::Set(DI(), 0x0F7FE000));
  const auto exponent = hn::BitCast(du, hn::IfThenElseZero(special, hn::Set(DI(), 0x7F800000)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  return hn::BitCast(df, hn::Or(hn::Or(scaled, exponent), sign));
#else
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(df, hn::LoadU(d16, from));
#endif
}

// N consecutive values of a strip as f32.
template <FloatType kType>
HWY_INLINE VF LoadValues(const std::byte* base, size_t index) {
  const DF df;
  if constexpr (kType == FloatType::kF32) {
    return hn::LoadU(df, reinterpret_cast<const float*>(base) + index);
  } else if constexpr (kType == FloatType::kF16) {
    return WidenF16(reinterpret_cast<const hwy::float16_t*>(base) + index);
  } else {
    const hn::Rebind<hwy::bfloat16_t, DF> d16;
    return hn::PromoteTo(df,
                         hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(base) + index));
  }
}

// Fetches the lines of a ReadAhead into L2, because they would not fit in L1.
class LinePrefetcher {
 public:
  explicit LinePrefetcher(ReadAhead* ahead) : ahead_(ahead) {
    if (ahead != nullptr) cursor_ = ahead->cursor;
  }
  // kCount lines, times the rate.
  template <int kCount>
  HWY_INLINE void Lines() {
    if (cursor_.rate == 0) return;
    Issue<kCount>();
    if (cursor_.rate > 1) Issue<kCount>();
  }
  // The same for loops that must not make a call, since a call would spill their registers: Line
  // goes to the end of the current range and then through one more, which BeginRange has prepared.
  void BeginRange() {
    if (cursor_.rate == 0) return;
    if (cursor_.at >= cursor_.end) Step();
    if (cursor_.at >= cursor_.end && !ahead_->Next(cursor_)) cursor_.rate = 0;
    if (following_.at == nullptr && cursor_.rate > 0 && !ahead_->Next(following_)) following_ = {};
  }
  HWY_INLINE void Line() {
    for (int i = 0; i < cursor_.rate; ++i) {
      if (cursor_.at >= cursor_.end) Step();
      if (cursor_.at >= cursor_.end) return;
      __builtin_prefetch(cursor_.at, 0, 2);
      cursor_.at += 64;
    }
  }
  void Save() {
    if (ahead_ == nullptr) return;
    ahead_->cursor = cursor_;
    if (following_.at != nullptr) ahead_->Back();
  }

 private:
  template <int kCount>
  HWY_INLINE void Issue() {
    if (cursor_.end - cursor_.at < 64 * kCount) return Finish();
    for (int i = 0; i < kCount; ++i) __builtin_prefetch(cursor_.at + 64 * i, 0, 2);
    cursor_.at += 64 * kCount;
  }
  HWY_INLINE void Step() {
    cursor_.at = following_.at;
    cursor_.end = following_.end;
    following_.at = following_.end = nullptr;
  }
  // The rest of a range, and on to the next.
  HWY_NOINLINE void Finish() {
    for (; cursor_.at < cursor_.end; cursor_.at += 64) __builtin_prefetch(cursor_.at, 0, 2);
    if (!ahead_->Next(cursor_)) cursor_.rate = 0;
  }

  ReadAhead* ahead_;
  ReadAhead::Cursor cursor_;
  ReadAhead::Cursor following_;  // at is null: none
};

// Calls run.template operator()<R>(first_row) over all rows, R = kTile and then the remainder.
template <int kTile = kRowTile, class Run>
HWY_INLINE void ForRowTiles(int num_rows, Run&& run) {
  int row = 0;
  for (; row + kTile <= num_rows; row += kTile) run.template operator()<kTile>(row);
  switch (num_rows - row) {
    case 1:
      run.template operator()<1>(row);
      break;
    case 2:
      if constexpr (kTile > 2) run.template operator()<2>(row);
      break;
    case 3:
      if constexpr (kTile > 3) run.template operator()<3>(row);
      break;
    default:
      break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
