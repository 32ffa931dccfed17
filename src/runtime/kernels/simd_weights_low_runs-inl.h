// Blocks of Q2_K, Q3_K, IQ4_NL and IQ4_XS as integers for products with rounded inputs, for every
// target; as simd_weights_runs-inl.h and simd_weights_short-inl.h for the other types.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_RUNS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_RUNS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_WEIGHTS_LOW_RUNS_INL_H_
#endif

#include "runtime/kernels/simd_weights_low_blocks-inl.h"
#include "runtime/kernels/simd_weights_runs-inl.h"
#include "runtime/kernels/simd_weights_short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

struct RunsQ2K {
  static constexpr size_t kBytes = 84;
  static constexpr int kMinima = 16;
  using Scales = PairedScales<16>;

  template <int kTokens>
  static HWY_INLINE void ReadFields(const uint8_t* block, const RoundedInput* inputs, size_t b,
                                    BlockFields (&fields)[kTokens]) {
    const D4 d;
    const float scale = hn::GetLane(BroadcastF16(d, block + 80));
    const float minimum = hn::GetLane(BroadcastF16(d, block + 82));
    for (int t = 0; t < kTokens; ++t) {
      fields[t].values[0] = scale * inputs[t].scales[b];
      fields[t].values[1] = minimum * inputs[t].scales[b];
    }
  }

  static HWY_INLINE void ReadScales(const uint8_t* block, Scales& scales, RunMinima& minima) {
    const BytesQ2K bytes(block);
    hn::Store(hn::Load(DU8x16(), bytes.minima), DU8x16(), minima.bytes);
    PairSigned<16>(reinterpret_cast<const int8_t*>(bytes.scales), scales);
  }

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, const Scales& scales, Use& use) {
    for (int half = 0; half < 2; ++half) {
      for (int v = 0; v < kRunVectors; ++v) {
        const VI16 pairs = WidenBytes(block + 16 + half * 32 + v * kCodeLanes);
        const int run = half * 4;
        Add(v, run, pairs, scales, use);
        Add(v, run + 1, hn::ShiftRight<2>(pairs), scales, use);
        Add(v, run + 2, hn::ShiftRight<4>(pairs), scales, use);
        Add(v, run + 3, hn::ShiftRight<6>(pairs), scales, use);
      }
    }
  }

 private:
  template <class Use>
  static HWY_INLINE void Add(int v, int run, VI16 pairs, const Scales& scales, Use& use) {
    const VI16 code = hn::And(pairs, hn::Set(DI16(), 3));
    use.Add(v, run * 32, hn::Mul(code, HalfScaleOf(scales, run, v)));
  }
};

struct RunsQ3K {
  static constexpr size_t kBytes = 110;
  static constexpr int kMinima = 0;
  using Scales = PairedScales<16>;

  template <int kTokens>
  static HWY_INLINE void ReadFields(const uint8_t* block, const RoundedInput* inputs, size_t b,
                                    BlockFields (&fields)[kTokens]) {
    ReadScaleField(block + 108, inputs, b, fields);
  }

  static HWY_INLINE void ReadScales(const uint8_t* block, Scales& scales, RunMinima& /*minima*/) {
    int8_t bytes[16];
    UnpackHalfScales(block + 96, bytes);
    PairSigned<16>(bytes, scales);
  }

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, const Scales& scales, Use& use) {
    for (int v = 0; v < kRunVectors; ++v) {
      const VI16 third = WidenBytes(block + v * kCodeLanes);
      Half(block + 32 + v * kCodeLanes, v, 0, hn::ShiftLeft<2>(third), scales, use);
      Half(block + 64 + v * kCodeLanes, v, 4, hn::ShiftRight<2>(third), scales, use);
    }
  }

 private:
  // Four runs; their third bits are bits 2 … 5 of `third`.
  template <class Use>
  static HWY_INLINE void Half(const uint8_t* from, int v, int run, VI16 third, const Scales& scales,
                              Use& use) {
    const VI16 pairs = WidenBytes(from);
    Add(v, run, pairs, third, scales, use);
    Add(v, run + 1, hn::ShiftRight<2>(pairs), hn::ShiftRight<1>(third), scales, use);
    Add(v, run + 2, hn::ShiftRight<4>(pairs), hn::ShiftRight<2>(third), scales, use);
    Add(v, run + 3, hn::ShiftRight<6>(pairs), hn::ShiftRight<3>(third), scales, use);
  }
  template <class Use>
  static HWY_INLINE void Add(int v, int run, VI16 pairs, VI16 third, const Scales& scales,
                             Use& use) {
    const DI16 d;
    const VI16 four = hn::Set(d, 4);
    const VI16 code = hn::Sub(hn::OrAnd(hn::And(pairs, hn::Set(d, 3)), third, four), four);
    use.Add(v, run * 32, hn::Mul(code, HalfScaleOf(scales, run, v)));
  }
};

// The 32 integers of 16 bytes of nibbles (LookUpNibbles), in one vector.
template <class D>
HWY_INLINE void WidenLookup(D d, const uint8_t* from, hn::Vec<D> (&codes)[1]) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<uint8_t, D> du8;
  const hn::Repartition<uint32_t, decltype(d8)> d32;
  alignas(32) static constexpr uint32_t kShifts[8] = {0, 0, 0, 0, 4, 4, 4, 4};
  const auto bytes = hn::BitCast(d32, hn::LoadDup128(du8, from));
  const auto shifted = hn::BitCast(d8, hn::Shr(bytes, hn::Load(d32, kShifts)));
  const auto table = hn::LoadDup128(d8, kNibbleValues);
  codes[0] = hn::PromoteTo(d, hn::TableLookupBytes(table, hn::And(shifted, hn::Set(d8, 15))));
}

// In two vectors.
template <class D>
HWY_INLINE void WidenLookup(D d, const uint8_t* from, hn::Vec<D> (&codes)[2]) {
  const VU8x16 nibbles = LoadBytes(from);
  codes[0] = hn::PromoteTo(d, LookUpBytes(LowNibblesOf(nibbles)));
  codes[1] = hn::PromoteTo(d, LookUpBytes(HighNibblesOf(nibbles)));
}

// In four.
template <class D>
HWY_INLINE void WidenLookup(D d, const uint8_t* from, hn::Vec<D> (&codes)[4]) {
  const hn::Rebind<int8_t, D> d8;
  const VU8x16 nibbles = LoadBytes(from);
  const VI8x16 low = LookUpBytes(LowNibblesOf(nibbles));
  const VI8x16 high = LookUpBytes(HighNibblesOf(nibbles));
  codes[0] = hn::PromoteTo(d, hn::LowerHalf(d8, low));
  codes[1] = hn::PromoteTo(d, hn::UpperHalf(d8, low));
  codes[2] = hn::PromoteTo(d, hn::LowerHalf(d8, high));
  codes[3] = hn::PromoteTo(d, hn::UpperHalf(d8, high));
}

struct RunsIQ4XS {
  static constexpr size_t kBytes = 136;
  static constexpr int kMinima = 0;
  using Scales = PairedScales<8>;

  template <int kTokens>
  static HWY_INLINE void ReadFields(const uint8_t* block, const RoundedInput* inputs, size_t b,
                                    BlockFields (&fields)[kTokens]) {
    ReadScaleField(block, inputs, b, fields);
  }

  static HWY_INLINE void ReadScales(const uint8_t* block, Scales& scales, RunMinima& /*minima*/) {
    int8_t bytes[8];
    UnpackLookupScales(block, bytes);
    PairSigned<8>(bytes, scales);
  }

  template <class Use>
  static HWY_INLINE void Visit(const uint8_t* block, const Scales& scales, Use& use) {
    for (int run = 0; run < 8; ++run) {
      VI16 codes[kRunVectors];
      WidenLookup(DI16(), block + 8 + run * 16, codes);
      for (int v = 0; v < kRunVectors; ++v) use.Add(v, run * 32, hn::Mul(codes[v], scales[run]));
    }
  }
};

// In vectors of 16 codes at most, as RoundedNibbles.
struct RoundedIQ4NL {
  static constexpr size_t kBytes = 18;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr int kCentre = 0;
  using D16 = hn::CappedTag < int16_t, kCodeLanes<16 ? kCodeLanes : 16>;
  static constexpr int kVectors = kCodeLanes < 16 ? 4 : 2;

  static HWY_INLINE void Widen(const uint8_t* block, hn::Vec<D16> (&codes)[kVectors]) {
    WidenLookup(D16(), block + 2, codes);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
