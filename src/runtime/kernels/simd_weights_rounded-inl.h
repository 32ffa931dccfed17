// Products with rounded inputs (RoundedInput), for every target: what blocks of 32 and of 256
// weights share, and the rounding itself. The blocks are in simd_weights_short-inl.h (32) and
// simd_weights_runs-inl.h (256).

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_ROUNDED_INL_H_
#endif

#include <algorithm>

#include "runtime/kernels/simd_weights_blocks-inl.h"
#include "runtime/kernels/weights.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

using DI16 = hn::RepartitionToNarrow<DI>;
using VI16 = hn::Vec<DI16>;

inline constexpr size_t kCodeLanes = 2 * kLanes;  // of a VI16

// Integer sums of products of 16-bit pairs. Instruction sets that keep the halves of a vector apart
// need two.
template <class D32>
struct PairSums {
  hn::Vec<D32> first;
  hn::Vec<D32> second;  // stays empty on x86

  HWY_INLINE PairSums() : first(hn::Zero(D32())), second(first) {}
  template <class V16>
  HWY_INLINE void Add(V16 a, const int16_t* b) {
    const D32 d;
#if HWY_TARGET == HWY_AVX3_DL
    // A memory operand of the instruction (see AddPairs); GCC 12 would load it apart.
    struct Operand {
      int16_t values[sizeof(hn::Vec<D32>) / sizeof(int16_t)];
    };
    __asm__("vpdpwssd %2, %1, %0"
            : "+v"(first.raw)
            : "v"(a.raw), "m"(*reinterpret_cast<const Operand*>(b)));
#elif HWY_ARCH_X86
    const hn::RepartitionToNarrow<D32> d16;
    first = AddPairs(d, first, hn::BitCast(d, a), hn::BitCast(d, hn::LoadU(d16, b)));
#else
    const hn::RepartitionToNarrow<D32> d16;
    first = hn::ReorderWidenMulAccumulate(d, a, hn::LoadU(d16, b), first, second);
#endif
  }
  HWY_INLINE hn::Vec<hn::RebindToFloat<D32>> Floats() const {
    const hn::RebindToFloat<D32> df;
#if HWY_ARCH_X86
    return hn::ConvertTo(df, first);
#else
    return hn::ConvertTo(df, hn::Add(first, second));
#endif
  }
};

// How far ahead of the rows in work lines are fetched, toward L2, and how many bytes at once where
// a range begins. Tiles of 128 KB from memory on a Zen 4 core: 18 GB/s with 1 KB, 25 with 4 KB (23
// toward L1), 26 with 8 KB, 24 with 16 KB; the start adds another.
inline constexpr size_t kRoundedAheadBytes = 8192;
inline constexpr size_t kRoundedStartBytes = 4096;

// Fetches what a range of rows reads later, at the pace of its reader. Nothing of use lies behind
// the end: there the distance shrinks to nothing, and costs nothing but the instruction.
class ReadAheadOf {
 public:
  HWY_INLINE ReadAheadOf(const uint8_t* begin, size_t bytes) : end_(begin + bytes) {
    for (size_t line = 0; line < std::min(bytes, kRoundedStartBytes); line += 64) {
      __builtin_prefetch(begin + line, 0, 2);
    }
  }
  // Before `bytes` from `at` on are read: how far ahead of them there is something to fetch.
  HWY_INLINE void Start(const uint8_t* at, size_t bytes) {
    const bool inside = static_cast<size_t>(end_ - at) >= bytes + kRoundedAheadBytes;
    distance_ = inside ? kRoundedAheadBytes : 0;
  }
  template <size_t kCount>
  HWY_INLINE void Bytes(const uint8_t* at) const {
    for (size_t line = 0; line < kCount; line += 64) {
      __builtin_prefetch(at + distance_ + line, 0, 2);
    }
  }

 private:
  const uint8_t* end_;
  size_t distance_ = 0;
};

// The largest magnitude of `count` values, a multiple of 32. As integers the magnitudes have the
// same order, and nothing finite is above infinity.
HWY_INLINE float LargestOf(const float* values, int count) {
  const DF df;
  const DI di;
  VI most[2] = {hn::Zero(di), hn::Zero(di)};
  for (int i = 0; i < count; i += 2 * static_cast<int>(kLanes)) {
    for (int k = 0; k < 2; ++k) {
      const VF value = hn::LoadU(df, values + i + k * kLanes);
      most[k] = hn::Max(most[k], hn::BitCast(di, hn::Abs(value)));
    }
  }
  return hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, hn::Max(most[0], most[1]))));
}

// A block of the input with codes up to `most`; returns its scale. See RoundedInput.
HWY_INLINE float RoundBlock(const float* values, int block, int most, int16_t* codes, float* sums) {
  const DF df;
  const DI di;
  const hn::Rebind<int16_t, DI> d16;
  const RoundingStep step = StepOf(LargestOf(values, block), most);
  const VF inverse = hn::Set(df, step.inverse);
  for (int run = 0; run < block; run += kRoundedRun) {
    VI sum = hn::Zero(di);
    for (size_t i = run; i < static_cast<size_t>(run) + kRoundedRun; i += kLanes) {
      // A block of zero step may hold NaN, and 0 * NaN is no code.
      const VF scaled = hn::Mul(hn::LoadU(df, values + i), inverse);
      const VI code = step.inverse == 0 ? hn::Zero(di) : hn::NearestInt(scaled);
      sum = hn::Add(sum, code);
      hn::StoreU(hn::DemoteTo(d16, code), d16, codes + i);
    }
    sums[run / kRoundedRun] = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
  }
  return step.scale;
}

inline void RoundInput(const float* values, int64_t count, int block, int16_t* codes, float* scales,
                       float* sums) {
  for (int64_t i = 0; i < count; i += block) {
    scales[i / block] =
        RoundBlock(values + i, block, kRoundedMost, codes + i, sums + i / kRoundedRun);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
