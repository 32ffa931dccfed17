// The pair decoder for every Highway target, from one source; see simd_kernels.cc.
//
// 32 states in vectors of 4, 8 or 16. A step takes one pair from each lane: 64 consecutive elements
// of a strip. Their exponents are joined with the other bits in registers. Lanes that need a word
// take the next words of the stream in ascending order, so the stream does not depend on the width
// of a vector.

#define HWY_WANT_AVX3_DL 1

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/exponent_pairs_tables.h"
#include "kernels/kernels.h"
#include "kernels/simd_table_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_exponent_pairs.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#ifndef VARVE_KERNELS_EXPAND_INDICES_
#define VARVE_KERNELS_EXPAND_INDICES_
namespace varve {

// kExpandIndices[mask][i]: how many of the lanes below i need a word, where `mask` has a bit per
// lane that does.
inline constexpr auto kExpandIndices = [] {
  std::array<std::array<uint8_t, 8>, 256> indices{};
  for (int mask = 0; mask < 256; ++mask) {
    uint8_t before = 0;
    for (int lane = 0; lane < 8; ++lane) {
      indices[mask][lane] = before;
      before = static_cast<uint8_t>(before + (mask >> lane & 1));
    }
  }
  return indices;
}();

}  // namespace varve
#endif

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::CappedTag<uint32_t, 16>;
using DU16 = hn::Repartition<uint16_t, DU>;
using VU = hn::Vec<DU>;
using VU16 = hn::Vec<DU16>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DU()));
inline constexpr int kVectors = kPairLanes / kLanes;

// Shifts a word into every state below the minimum; moves `words` behind the last one taken. Reads
// kLanes words.
HWY_INLINE VU Refill(VU state, const uint8_t*& words) {
  const DU du;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const __mmask16 needs = _mm512_cmplt_epu32_mask(state.raw, _mm512_set1_epi32(kPairStateMin));
  const __m512i next =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  words += 2 * std::popcount(static_cast<uint32_t>(needs));
  const __m512i shifted = _mm512_slli_epi32(state.raw, 16);
  return VU{
      _mm512_mask_or_epi32(state.raw, needs, shifted, _mm512_maskz_expand_epi32(needs, next))};
#else
  const hn::Rebind<uint8_t, DU> d8;
  const hn::Rebind<uint16_t, DU> d16;
  const hn::Repartition<uint8_t, decltype(d16)> bytes;
  const auto needs = hn::Eq(hn::ShiftRight<16>(state), hn::Zero(du));
  uint8_t bits[8] = {};
  hn::StoreMaskBits(du, needs, bits);
  const uint32_t mask = bits[0];
  const VU next = hn::PromoteTo(du, hn::BitCast(d16, hn::LoadU(bytes, words)));
  words += 2 * std::popcount(mask);
  const VU order = hn::PromoteTo(du, hn::LoadU(d8, kExpandIndices[mask].data()));
  const VU expanded = hn::TableLookupLanes(next, hn::IndicesFromVec(du, order));
  return hn::IfThenElse(needs, hn::Or(hn::ShiftLeft<16>(state), expanded), state);
#endif
}

// Exponents of a vector of pairs, in place.
template <PairElement kElement>
HWY_INLINE VU Exponents(VU entry, VU base) {
  const DU du;
  constexpr int kShift = ExponentShift(kElement);
  constexpr uint32_t kMask = ExponentMask(kElement) * 0x10001u;
  const VU first = hn::ShiftLeft<kShift>(hn::And(entry, hn::Set(du, 0x0Fu)));
  const VU second = hn::ShiftLeft<12 + kShift>(hn::And(entry, hn::Set(du, 0xF0u)));
  return hn::And(hn::Add(hn::Or(first, second), base), hn::Set(du, kMask));
}

// Joins the exponents of 2 * kLanes elements with their raw bits; `at` is their place in the block.
template <PairElement kElement>
HWY_INLINE VU16 Join(VU exponents, const uint8_t* block, int at) {
  const DU16 d16;
  VU16 out = hn::BitCast(d16, exponents);
  if constexpr (kElement == PairElement::kExponent) return out;
  const hn::Rebind<uint8_t, DU16> d8;
  const VU16 low = hn::PromoteTo(d16, hn::LoadU(d8, block + at));
  if constexpr (kElement == PairElement::kBF16) {
    const VU16 sign = hn::ShiftLeft<8>(hn::And(low, hn::Set(d16, uint16_t{0x80})));
    return hn::Or(out, hn::Or(sign, hn::And(low, hn::Set(d16, uint16_t{0x7F}))));
  } else {
    out = hn::Or(out, low);
    const uint8_t* planes = block + 64 + at / 8;
    const auto add = [&](int plane, uint16_t bit) HWY_ATTR {
      const auto set = hn::LoadMaskBits(d16, planes + 8 * plane);
      out = hn::Or(out, hn::IfThenElseZero(set, hn::Set(d16, bit)));
    };
    add(0, 0x8000);
    add(1, 0x0200);
    add(2, 0x0100);
    return out;
  }
}

// Tables and bases of a step's lanes. Vector j has lanes [j * kLanes, (j + 1) * kLanes).
template <PairLayout kLayout>
class StepUnits;

// Eight lanes a channel.
template <>
class StepUnits<PairLayout::kTiles> {
 public:
  StepUnits(const PairDecodeArgs& args, int head)
      : tables_(args.unit_table + head * args.dim),
        bases_(args.unit_base + head * args.dim),
        dim_(args.dim) {}
  HWY_INLINE VU Table(int j) const { return Of(tables_ + unit_, j); }
  HWY_INLINE VU Base(int j) const { return Of(bases_ + unit_, j); }
  HWY_INLINE void Advance() {
    unit_ += kPairLanes / 8;
    if (unit_ == dim_) unit_ = 0;
  }

 private:
  static HWY_INLINE VU Of(const uint32_t* from, int j) {
    const DU du;
    if constexpr (kLanes == 16) {
      return hn::IfThenElse(hn::FirstN(du, 8), hn::Set(du, from[2 * j]),
                            hn::Set(du, from[2 * j + 1]));
    } else {
      return hn::Set(du, from[j * kLanes / 8]);
    }
  }
  const uint32_t* tables_;
  const uint32_t* bases_;
  int dim_;
  int unit_ = 0;
};

// Half a chunk of units, repeated for as many steps as the chunk has.
template <>
class StepUnits<PairLayout::kChunks> {
 public:
  StepUnits(const PairDecodeArgs& args, int head)
      : tables_from_(args.unit_table + head * args.dim / 2),
        bases_from_(args.unit_base + head * args.dim / 2),
        half_(args.chunk / 2),
        steps_(args.num_rows * args.chunk / (2 * kPairLanes)),
        chunks_left_(args.dim / args.chunk) {
    Load();
  }
  HWY_INLINE VU Table(int j) const { return hn::Load(DU(), tables_ + j * kLanes % 16); }
  HWY_INLINE VU Base(int j) const { return hn::Load(DU(), bases_ + j * kLanes % 16); }
  HWY_INLINE void Advance() {
    if (--left_ == 0 && --chunks_left_ > 0) Load();
  }

 private:
  void Load() {
    for (int i = 0; i < 16; ++i) {
      tables_[i] = tables_from_[i % half_];
      bases_[i] = bases_from_[i % half_];
    }
    tables_from_ += half_;
    bases_from_ += half_;
    left_ = steps_;
  }
  const uint32_t* tables_from_;
  const uint32_t* bases_from_;
  int half_;
  int steps_;
  int left_ = 0;
  int chunks_left_;
  alignas(64) uint32_t tables_[16];
  alignas(64) uint32_t bases_[16];
};

// tables[index]. On Zen 4, where gathers are slow, single loads make decoding 10 % faster.
HWY_INLINE VU Lookup(const uint32_t* tables, VU index) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  alignas(64) uint64_t two[8];
  _mm512_store_si512(two, index.raw);
  __m128i q[4];
  for (int i = 0; i < 4; ++i) {
    const uint64_t a = two[2 * i], b = two[2 * i + 1];
    __m128i v = _mm_cvtsi32_si128(static_cast<int>(tables[static_cast<uint32_t>(a)]));
    v = _mm_insert_epi32(v, static_cast<int>(tables[a >> 32]), 1);
    v = _mm_insert_epi32(v, static_cast<int>(tables[static_cast<uint32_t>(b)]), 2);
    q[i] = _mm_insert_epi32(v, static_cast<int>(tables[b >> 32]), 3);
  }
  const __m256i lo = _mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1);
  const __m256i hi = _mm256_inserti128_si256(_mm256_castsi128_si256(q[2]), q[3], 1);
  return VU{_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1)};
#elif HWY_TARGET == HWY_AVX2
  alignas(32) uint64_t two[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(two), index.raw);
  __m128i q[2];
  for (int i = 0; i < 2; ++i) {
    const uint64_t a = two[2 * i], b = two[2 * i + 1];
    __m128i v = _mm_cvtsi32_si128(static_cast<int>(tables[static_cast<uint32_t>(a)]));
    v = _mm_insert_epi32(v, static_cast<int>(tables[a >> 32]), 1);
    v = _mm_insert_epi32(v, static_cast<int>(tables[static_cast<uint32_t>(b)]), 2);
    q[i] = _mm_insert_epi32(v, static_cast<int>(tables[b >> 32]), 3);
  }
  return VU{_mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1)};
#else
  const hn::RebindToSigned<DU> di;
  return hn::GatherIndex(DU(), tables, hn::BitCast(di, index));
#endif
}

// Replaces what the escape symbol gave by the listed exponents; `lanes` has a bit for each pair of
// the step that is an escape. Returns where the list goes on, null if it ends too early.
template <PairElement kElement>
HWY_NOINLINE const uint8_t* PatchEscapes(uint32_t lanes, std::byte* out, const uint8_t* escapes,
                                         const uint8_t* escapes_end) {
  constexpr uint32_t kMask = ExponentMask(kElement);
  for (; lanes != 0; lanes &= lanes - 1) {
    if (escapes == escapes_end) return nullptr;
    std::byte* at = out + 4 * std::countr_zero(lanes);
    uint16_t pair[2];
    std::memcpy(pair, at, 4);
    for (int i = 0; i < 2; ++i) {
      const uint32_t exponent = static_cast<uint32_t>(escapes[i]) << ExponentShift(kElement);
      pair[i] = static_cast<uint16_t>((pair[i] & ~kMask) | (exponent & kMask));
    }
    std::memcpy(at, pair, 4);
    escapes += 2;
  }
  return escapes;
}

// Lanes whose entry is the escape, from bit `shift` on.
HWY_INLINE uint32_t EscapeLanes(VU entry, int shift) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return static_cast<uint32_t>(_mm512_movepi32_mask(entry.raw)) << shift;
#else
  const hn::RebindToSigned<DU> di;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(di, hn::Lt(hn::BitCast(di, entry), hn::Zero(di)), bits);
  return static_cast<uint32_t>(bits[0]) << shift;
#endif
}

// Everything that changes from step to step is a local variable, because a store to `out` might
// alias a member.
template <PairElement kElement, PairLayout kLayout>
bool DecodeStrips(const PairDecodeArgs& args) {
  const DU du;
  const DU16 d16;
  const uint8_t* words = args.words;
  const uint8_t* const words_end = args.words + 2 * args.num_words;
  const uint8_t* raw = args.raw;
  const uint8_t* escapes = args.escapes;
  const uint8_t* const escapes_end = args.escapes + 2 * args.num_escapes;
  const uint32_t* const tables = args.tables;
  VU states[kVectors];
  for (int j = 0; j < kVectors; ++j) states[j] = hn::LoadU(du, args.states + j * kLanes);
  const int64_t steps = static_cast<int64_t>(args.num_rows) * args.dim / (2 * kPairLanes);
  for (int head = 0; head < args.num_heads; ++head) {
    StepUnits<kLayout> units(args, head);
    std::byte* out = args.out + static_cast<size_t>(head) * args.head_stride;
    for (int64_t step = 0; step < steps; ++step) {
      // A step takes at most 64 bytes and reads 32 beyond: within the slack.
      if (words > words_end) return false;
      VU entries[kVectors];
      VU flags = hn::Zero(du);
      for (int j = 0; j < kVectors; ++j) {
        const VU slot = hn::And(states[j], hn::Set(du, kPairTableEntries - 1u));
        entries[j] = Lookup(tables, hn::Add(slot, units.Table(j)));
        flags = hn::Or(flags, entries[j]);
      }
      for (int j = 0; j < kVectors; ++j) {
        const VU frequency = hn::And(hn::ShiftRight<19>(entries[j]), hn::Set(du, 0xFFFu));
        const VU place = hn::And(hn::ShiftRight<8>(entries[j]), hn::Set(du, 0x7FFu));
        const VU quotient = hn::ShiftRight<kPairProbBits>(states[j]);
        states[j] = Refill(hn::Add(hn::Mul(frequency, quotient), place), words);
      }
      uint16_t* to = reinterpret_cast<uint16_t*>(out);
      for (int j = 0; j < kVectors; ++j) {
        const VU exponents = Exponents<kElement>(entries[j], units.Base(j));
        hn::StoreU(Join<kElement>(exponents, raw, j * 2 * kLanes), d16, to + j * 2 * kLanes);
      }
      if (HWY_UNLIKELY(EscapeLanes(flags, 0) != 0)) {
        uint32_t escaped = 0;
        for (int j = 0; j < kVectors; ++j) escaped |= EscapeLanes(entries[j], j * kLanes);
        escapes = PatchEscapes<kElement>(escaped, out, escapes, escapes_end);
        if (escapes == nullptr) return false;
      }
      units.Advance();
      raw += PairRawBlockBytes(kElement, 64);
      out += 128;
    }
  }
  for (int j = 0; j < kVectors; ++j) hn::StoreU(states[j], du, args.end_states + j * kLanes);
  return words == words_end && escapes == escapes_end;
}

template <PairElement kElement>
bool DecodeElement(const PairDecodeArgs& args) {
  return args.layout == PairLayout::kTiles ? DecodeStrips<kElement, PairLayout::kTiles>(args)
                                           : DecodeStrips<kElement, PairLayout::kChunks>(args);
}

inline bool DecodePairsSimd(const PairDecodeArgs& args) {
  // Shapes that are not whole steps are left to the scalar code; pages of a cache never have such a
  // shape.
  const bool whole =
      args.layout == PairLayout::kTiles
          ? args.num_rows % 16 == 0 && args.dim % 4 == 0
          : (args.chunk == 16 || args.chunk == 32) && args.num_rows * args.chunk % 64 == 0;
  if (!whole) return DecodePairsScalar(args);
  switch (args.element) {
    case PairElement::kF16:
      return DecodeElement<PairElement::kF16>(args);
    case PairElement::kBF16:
      return DecodeElement<PairElement::kBF16>(args);
    case PairElement::kExponent:
      break;
  }
  return DecodeElement<PairElement::kExponent>(args);
}

const PairKernels& PairTable(const char* name) {
  static const PairKernels table = {.name = name, .decode = DecodePairsSimd};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const PairKernels*> SimdPairKernels() { VARVE_SIMD_TABLES(PairKernels, PairTable); }

}  // namespace varve
#endif  // HWY_ONCE
