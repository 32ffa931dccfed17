// The rotation loops for every Highway target, from one source; see simd_kernels.cc.

#define HWY_WANT_AVX3_DL 1

#include <vector>

#include "kernels/kernels.h"
#include "kernels/rotated_rows_tables.h"
#include "kernels/simd_table_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_rotated_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using DU16 = hn::Repartition<uint16_t, DU>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));

// `bits` in the low halves.
template <bool kBF16>
HWY_INLINE VF Widen(VU bits) {
  const DU du;
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const VU sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const VU wide = kBF16 ? hn::ShiftLeft<16>(magnitude)
                        : hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, kRotationF16Bias));
  return hn::BitCast(DF(), hn::Or(sign, wide));
}

// In the low halves, zeros above.
template <bool kBF16>
HWY_INLINE VU Narrow(VF value) {
  const DU du;
  const VU bits = hn::BitCast(du, value);
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  if constexpr (kBF16) {
    return hn::Or(sign, hn::ShiftRight<16>(hn::Add(magnitude, hn::Set(du, 0x8000u))));
  } else {
    // max(magnitude, bias) - bias + half a step
    const VU least = hn::Max(magnitude, hn::Set(du, kRotationF16Bias));
    const VU rounded = hn::Sub(least, hn::Set(du, kRotationF16Bias - 0x1000u));
    return hn::Or(sign, hn::ShiftRight<13>(rounded));
  }
}

HWY_INLINE void TurnOf(VU phase, VF& cos, VF& sin) {
  const DF df;
  const DU du;
  const DI di;
  // The nearest quarter is in the top two bits of this; the rest is what is below, with its sign.
  const VU nearest = hn::Add(phase, hn::Set(du, 1u << 29));
  const auto rest = hn::ShiftRight<2>(hn::BitCast(di, hn::ShiftLeft<2>(phase)));
  const VF x = hn::Mul(hn::ConvertTo(df, rest), hn::Set(df, kRotationToRadians));
  const VF x2 = hn::Mul(x, x);
  const auto polynomial = [&](const float* c) HWY_ATTR {
    return hn::Add(hn::Set(df, c[0]), hn::Mul(x2, hn::Set(df, c[1])));
  };
  const VF s = hn::Add(x, hn::Mul(hn::Mul(x, x2), polynomial(kRotationSin)));
  const VF c = hn::Add(hn::Set(df, 1.0f), hn::Mul(x2, polynomial(kRotationCos)));
  const auto odd = hn::RebindMask(df, hn::TestBit(nearest, hn::Set(du, 1u << 30)));
  // Quarters 2 and 3 turn both signs; in quarters 1 and 3 they change places, the cosine is -sin.
  const VU sign = hn::Set(du, 1u << 31);
  const VU back = hn::And(nearest, sign);
  const VU flip = hn::And(hn::Xor(nearest, hn::ShiftLeft<1>(nearest)), sign);
  cos = hn::BitCast(df, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), flip));
  sin = hn::BitCast(df, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), back));
}

template <bool kBF16>
HWY_INLINE void TurnPair(VU first, VU second, VU phase, VU& out_first, VU& out_second) {
  VF cos, sin;
  TurnOf(phase, cos, sin);
  const VF a = Widen<kBF16>(first), b = Widen<kBF16>(second);
  out_first = Narrow<kBF16>(hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)));
  out_second = Narrow<kBF16>(hn::Add(hn::Mul(a, sin), hn::Mul(b, cos)));
}

// Adds what was missed, in the order of values.
template <class D>
HWY_INLINE hn::Vec<D> AddMisses(D d, hn::Vec<D> words, const uint16_t* misses) {
  if (misses == nullptr) return words;
  const hn::RebindToSigned<D> di;
  const auto ordered = [&](hn::Vec<D> bits) HWY_ATTR {
    const auto negative = hn::BitCast(d, hn::ShiftRight<15>(hn::BitCast(di, bits)));
    return hn::Xor(bits, hn::And(negative, hn::Set(d, uint16_t{0x7FFF})));
  };
  const auto missed = hn::Sub(hn::LoadU(d, misses), hn::Set(d, uint16_t{kRotationMissBias}));
  return ordered(hn::Add(ordered(words), missed));
}

template <bool kBF16>
void RotateInterleaved(const RotateRowArgs& args) {
  const DU du;
  const DU16 d16;
  const VU distance = hn::Set(du, args.distance);
  const int dim = args.dim;
  const uint16_t* const row = args.row;
  const uint32_t* const turns = args.turns;
  const uint16_t* const misses = args.misses;
  uint16_t* const out = args.out;
  for (int i = 0; i < dim; i += 2 * kLanes) {
    const VU both = hn::BitCast(du, hn::LoadU(d16, row + i));
    const VU phase = hn::Mul(hn::LoadU(du, turns + i / 2), distance);
    VU first, second;
    TurnPair<kBF16>(both, hn::ShiftRight<16>(both), phase, first, second);
    const auto joined = hn::BitCast(d16, hn::Or(first, hn::ShiftLeft<16>(second)));
    hn::StoreU(AddMisses(d16, joined, misses != nullptr ? misses + i : nullptr), d16, out + i);
  }
}

template <bool kBF16>
void RotateHalves(const RotateRowArgs& args) {
  const DU du;
  const hn::Rebind<uint16_t, DU> half;
  const VU distance = hn::Set(du, args.distance);
  const int pairs = args.dim / 2;
  const uint16_t* const row = args.row;
  const uint32_t* const turns = args.turns;
  const uint16_t* const misses = args.misses;
  uint16_t* const out = args.out;
  const auto store = [&](VU words, int at) HWY_ATTR {
    const auto narrow = hn::TruncateTo(half, words);
    hn::StoreU(AddMisses(half, narrow, misses != nullptr ? misses + at : nullptr), half, out + at);
  };
  for (int i = 0; i < pairs; i += kLanes) {
    const VU phase = hn::Mul(hn::LoadU(du, turns + i), distance);
    VU first, second;
    TurnPair<kBF16>(hn::PromoteTo(du, hn::LoadU(half, row + i)),
                    hn::PromoteTo(du, hn::LoadU(half, row + i + pairs)), phase, first, second);
    store(first, i);
    store(second, i + pairs);
  }
}

void RotateRow(const RotateRowArgs& args) {
  if (args.dim % (2 * kLanes) != 0) return RotateRowScalar(args);
  const bool halves = args.order == RotationOrder::kHalves;
  if (args.bf16) {
    halves ? RotateHalves<true>(args) : RotateInterleaved<true>(args);
  } else {
    halves ? RotateHalves<false>(args) : RotateInterleaved<false>(args);
  }
}

// Eight rows by eight channels in every 128 bits: eight or sixteen rows at a time.
using DTile = hn::CappedTag<uint16_t, 16>;
inline constexpr int kTileLanes = static_cast<int>(hn::MaxLanes(DTile()));

// Eight channels of a row and, where vectors have 256 bits, of the row eight below it.
template <class D>
HWY_INLINE hn::Vec<D> LoadTileRows(D d, const uint16_t* const* rows, int channel) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return hn::LoadU(d, rows[0] + channel);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, rows[8] + channel), hn::LoadU(half, rows[0] + channel));
  }
}

void FillTile(const uint16_t* const* rows, int dim, uint16_t* out) {
  const DTile d16;
  const hn::Repartition<uint32_t, DTile> d32;
  const hn::Repartition<uint64_t, DTile> d64;
  for (int channel = 0; channel < dim; channel += 8) {
    for (int r = 0; r < 16; r += kTileLanes) {
      hn::Vec<DTile> in[8];
      for (int i = 0; i < 8; ++i) in[i] = LoadTileRows(d16, rows + r + i, channel);
      hn::Vec<decltype(d32)> pairs[8];  // rows 2i and 2i + 1: channels 0 … 3, then 4 … 7
      for (int i = 0; i < 4; ++i) {
        pairs[i] = hn::BitCast(d32, hn::InterleaveLower(d16, in[2 * i], in[2 * i + 1]));
        pairs[4 + i] = hn::BitCast(d32, hn::InterleaveUpper(d16, in[2 * i], in[2 * i + 1]));
      }
      for (int upper = 0; upper < 2; ++upper) {
        const auto* four = pairs + 4 * upper;
        const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, four[0], four[1]));
        const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, four[2], four[3]));
        const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, four[0], four[1]));
        const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, four[2], four[3]));
        uint16_t* to = out + 16 * (channel + 4 * upper) + r;
        hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, low01, low23)), d16, to);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, low01, low23)), d16, to + 16);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, high01, high23)), d16, to + 32);
        hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, high01, high23)), d16, to + 48);
      }
    }
  }
}

const RotationKernels& RotationTable(const char* name) {
  static const RotationKernels table = {
      .name = name, .rotate_row = RotateRow, .fill_tile = FillTile};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const RotationKernels*> SimdRotationKernels() {
  VARVE_SIMD_TABLES(RotationKernels, RotationTable);
}

}  // namespace varve
#endif  // HWY_ONCE
