// The plane decoder for every Highway target, from one source; see simd_kernels.cc.
//
// A block of 64 elements at a time: planes are spread out in general registers, then used as masks
// of vectors of bytes.

#define HWY_WANT_AVX3_DL 1

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/exponent_planes_tables.h"
#include "kernels/kernels.h"
#include "kernels/simd_table_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_exponent_planes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#ifndef VARVE_KERNELS_TILE_CHANNELS_
#define VARVE_KERNELS_TILE_CHANNELS_
namespace varve {

// The channel of each element of a block of tiles, of four.
alignas(64) inline constexpr auto kTileChannels = [] {
  std::array<uint8_t, kPlaneElements> channels{};
  for (size_t i = 0; i < kPlaneElements; ++i) channels[i] = static_cast<uint8_t>(i / 16);
  return channels;
}();

}  // namespace varve
#endif

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::CappedTag<uint8_t, 64>;
using D16 = hn::Repartition<uint16_t, D8>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
inline constexpr int kByteLanes = static_cast<int>(hn::MaxLanes(D8()));
inline constexpr int kBlock = static_cast<int>(kPlaneElements);
inline constexpr int kByteVectors = kBlock / kByteLanes;

// The lowest bits of `bits` at the places that are set in `mask`, ascending.
HWY_INLINE uint64_t Spread(uint64_t bits, uint64_t mask) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86_64
  return _pdep_u64(bits, mask);
#else
  uint64_t spread = 0;
  for (; mask != 0; mask &= mask - 1, bits >>= 1) {
    if ((bits & 1) != 0) spread |= mask & (0 - mask);
  }
  return spread;
#endif
}

HWY_INLINE uint64_t Load64(const uint8_t* from) {
  uint64_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// Bits of a stream from any bit on: at least 57, zeros above. Reads 8 bytes.
inline constexpr size_t kBitsAtOnce = 57;
HWY_INLINE uint64_t BitsAt(const uint8_t* from, size_t bit) {
  return Load64(from + bit / 8) >> bit % 8;
}
// 64 of them; reads 9 bytes.
HWY_INLINE uint64_t AllBitsAt(const uint8_t* from, size_t bit) {
  return BitsAt(from, bit) | uint64_t{from[bit / 8 + 8]} << 1 << (63 - bit % 8);
}

// Adds to the elements that are set in `mask`.
template <int kAdd>
HWY_INLINE void AddWhere(uint64_t mask, V8* HWY_RESTRICT values) {
  const D8 d8;
  const uint8_t* const by = PlaneBytes(kAdd);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  values[0] = V8{_mm512_mask_add_epi8(values[0].raw, mask, values[0].raw, hn::Load(d8, by).raw)};
#else
  uint8_t bits[8];
  std::memcpy(bits, &mask, sizeof(bits));
  for (int j = 0; j < kByteVectors; ++j) {
    const auto set = hn::LoadMaskBits(d8, bits + j * kByteLanes / 8);
    values[j] = hn::Add(values[j], hn::IfThenElseZero(set, hn::Load(d8, by)));
  }
#endif
}

// Blocks between two looks whether the streams are long enough: the slack allows for so many.
inline constexpr int64_t kBlocksAtOnce = 8;
static_assert(kBlocksAtOnce * 16 + 9 <= static_cast<int64_t>(kPlaneReadSlack));

// Where the streams are; a copy of its own, because a store to `out` might alias what args point
// to.
struct Cursors {
  explicit Cursors(const PlaneDecodeArgs& args) : patch(args.patches) {
    for (int i = 0; i < kMaxPlaneLevels - 1; ++i) {
      level[i] = args.levels[i];
      end[i] = 8 * args.level_bytes[i];
    }
  }
  bool Inside() const {
    bool inside = true;
    for (int i = 0; i < kMaxPlaneLevels - 1; ++i) inside &= bit[i] <= end[i];
    return inside;
  }

  const uint8_t* level[kMaxPlaneLevels - 1];
  size_t end[kMaxPlaneLevels - 1];  // bits
  size_t bit[kMaxPlaneLevels - 1] = {};
  const uint8_t* patch;
};

// Adds what the levels from kLevel on say of the elements in `here`; returns those that leave the
// last one. kStep: what 1 is in `values`.
template <PairElement kElement, int kLevel, int kStep>
HWY_INLINE uint64_t AddLevels(uint64_t here, Cursors& at, V8* HWY_RESTRICT values) {
  constexpr PlaneLadder kLadder = LadderOf(kElement);
  if constexpr (kLevel == kLadder.num_levels) {
    return here;
  } else {
    constexpr PlaneLevel kThis = kLadder.levels[kLevel];
    const uint8_t* const planes = at.level[kLevel - 1];
    size_t& bit = at.bit[kLevel - 1];
    const size_t count = static_cast<size_t>(std::popcount(here));
    if constexpr (kThis.enter != 0) AddWhere<kStep * kThis.enter>(here, values);
    uint64_t first = BitsAt(planes, bit), second = first >> count % 64;
    if (HWY_UNLIKELY(count * kThis.bits > kBitsAtOnce)) {
      first = AllBitsAt(planes, bit);
      second = AllBitsAt(planes, bit + count);
    }
    first = Spread(first, here);
    AddWhere<kStep * kThis.add[0]>(first, values);
    uint64_t next = first;
    if constexpr (kThis.bits == 2) {
      second = Spread(second, here);
      AddWhere<kStep * kThis.add[1]>(second, values);
      next &= second;
    }
    bit += kThis.bits * count;
    return AddLevels<kElement, kLevel + 1, kStep>(next, at, values);
  }
}

// Bases of a block's channels. Blocks come one after the other.
template <PairLayout kLayout>
class BlockBases;

// Sixteen elements a channel.
template <>
class BlockBases<PairLayout::kTiles> {
 public:
  BlockBases(const PlaneDecodeArgs& args, int head)
      : from_(args.bases + static_cast<size_t>(head) * static_cast<size_t>(args.dim)),
        dim_(args.dim) {}
  template <int kStep>
  HWY_INLINE void Load(V8* HWY_RESTRICT values) {
    const D8 d8;
    const hn::Repartition<uint32_t, D8> d32;
    uint32_t four;
    std::memcpy(&four, from_ + channel_, sizeof(four));
    const V8 bases = hn::BitCast(d8, hn::Set(d32, four * kStep));
    for (int j = 0; j < kByteVectors; ++j) {
      values[j] = hn::TableLookupBytes(bases, hn::Load(d8, kTileChannels.data() + j * kByteLanes));
    }
    channel_ += 4;
    if (channel_ == dim_) channel_ = 0;
  }

 private:
  const uint8_t* from_;
  int dim_;
  int channel_ = 0;
};

// A chunk of channels, repeated for all rows, then the next.
template <>
class BlockBases<PairLayout::kChunks> {
 public:
  BlockBases(const PlaneDecodeArgs& args, int head)
      : from_(args.bases + static_cast<size_t>(head) * static_cast<size_t>(args.dim)),
        chunk_(args.chunk),
        blocks_(args.num_rows * args.chunk / kBlock) {
    Repeat();
  }
  template <int kStep>
  HWY_INLINE void Load(V8* HWY_RESTRICT values) {
    const D8 d8;
    if (left_ == 0) {
      from_ += chunk_;
      Repeat();
    }
    const uint8_t* bases = chunk_ < kBlock ? repeated_ : from_ + at_;
    for (int j = 0; j < kByteVectors; ++j) {
      values[j] = hn::LoadU(d8, bases + j * kByteLanes);
      for (int twice = 1; twice < kStep; twice *= 2) values[j] = hn::Add(values[j], values[j]);
    }
    at_ += kBlock;
    if (at_ >= chunk_) at_ = 0;
    --left_;
  }

 private:
  void Repeat() {
    left_ = blocks_;
    at_ = 0;
    if (chunk_ >= kBlock || from_ == nullptr) return;
    for (int at = 0; at < kBlock; at += chunk_)
      std::memcpy(repeated_ + at, from_, static_cast<size_t>(chunk_));
  }
  const uint8_t* from_;
  int chunk_;
  int blocks_;  // of a chunk
  int left_ = 0;
  int at_ = 0;
  alignas(64) uint8_t repeated_[kBlock];
};

// Joins low and high bytes of 64 elements.
HWY_INLINE void StoreWords(const V8* HWY_RESTRICT low, const V8* HWY_RESTRICT high, uint16_t* out) {
  const D8 d8;
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int j = 0; j < kByteVectors; ++j, to += 2 * kByteLanes) {
    // Every 128 bits by themselves; then the first halves of all, and the second.
    const V8 first = hn::InterleaveLower(d8, low[j], high[j]);
    const V8 second = hn::InterleaveUpper(d8, low[j], high[j]);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(first.raw, front, second.raw));
    _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi64(first.raw, back, second.raw));
#elif HWY_TARGET == HWY_AVX2
    hn::StoreU(hn::ConcatLowerLower(d8, second, first), d8, to);
    hn::StoreU(hn::ConcatUpperUpper(d8, second, first), d8, to + kByteLanes);
#else
    hn::StoreU(first, d8, to);
    hn::StoreU(second, d8, to + kByteLanes);
#endif
  }
}

// The block's elements from their exponents, each kStep times as much as it is.
template <PairElement kElement>
HWY_INLINE void JoinBlock(const uint8_t* block, V8* HWY_RESTRICT values, uint16_t* out) {
  const D8 d8;
  V8 low[kByteVectors];
  if constexpr (kElement == PairElement::kExponent) {
    V8 high[kByteVectors];
    for (int j = 0; j < kByteVectors; ++j) high[j] = hn::Zero(d8);
    StoreWords(values, high, out);
  } else if constexpr (kElement == PairElement::kBF16) {
    const D16 d16;
    for (int j = 0; j < kByteVectors; ++j) {
      const V8 raw = hn::LoadU(d8, block + j * kByteLanes), top = hn::Set(d8, uint8_t{0x80});
      // Shifts of bytes: what comes from the neighbour is masked away.
      const V8 odd = hn::And(hn::BitCast(d8, hn::ShiftLeft<7>(hn::BitCast(d16, values[j]))), top);
      const V8 rest =
          hn::AndNot(top, hn::BitCast(d8, hn::ShiftRight<1>(hn::BitCast(d16, values[j]))));
      low[j] = hn::Or(hn::AndNot(top, raw), odd);
      values[j] = hn::Or(hn::And(raw, top), rest);
    }
    StoreWords(low, values, out);
  } else {
    for (int j = 0; j < kByteVectors; ++j) {
      low[j] = hn::LoadU(d8, block + j * kByteLanes);
      values[j] = hn::And(values[j], hn::Load(d8, PlaneBytes(0x7C)));
    }
    AddWhere<0x80>(Load64(block + 64), values);
    AddWhere<2>(Load64(block + 72), values);
    AddWhere<1>(Load64(block + 80), values);
    StoreWords(low, values, out);
  }
}

// Puts listed exponents into the elements of `which`; false if there are not so many. To expand
// them in a vector, in every block and without a branch, was 15 % slower.
template <PairElement kElement>
HWY_NOINLINE bool Patch(uint64_t which, const uint8_t*& patch, const uint8_t* end, uint16_t* out) {
  constexpr uint32_t kMask = ExponentMask(kElement);
  for (; which != 0; which &= which - 1) {
    if (patch == end) return false;
    uint16_t& word = out[std::countr_zero(which)];
    const uint32_t exponent = uint32_t{*patch++} << ExponentShift(kElement);
    word = static_cast<uint16_t>((word & ~kMask) | (exponent & kMask));
  }
  return true;
}

template <PairElement kElement, PairLayout kLayout>
bool DecodeStrips(const PlaneDecodeArgs& args) {
  constexpr PlaneLadder kLadder = LadderOf(kElement);
  constexpr PlaneLevel kFirst = kLadder.levels[0];
  constexpr size_t kRaw = PairRawBlockBytes(kElement, kPlaneElements);
  constexpr int kStep = kElement == PairElement::kF16 ? 4 : 1;  // in the high byte
  const uint8_t* block = args.blocks;
  const uint8_t* const patches_end = args.patches + args.num_patches;
  const int64_t blocks = static_cast<int64_t>(args.num_rows) * args.dim / kBlock;
  Cursors at(args);
  for (int head = 0; head < args.num_heads; ++head) {
    BlockBases<kLayout> bases(args, head);
    auto* out =
        reinterpret_cast<uint16_t*>(args.out + static_cast<size_t>(head) * args.head_stride);
    for (int64_t i = 0; i < blocks; ++i, out += kBlock, block += PlaneBlockBytes(kElement)) {
      // A block takes at most 16 bytes of a level and reads 9 from the last of them on.
      if (i % kBlocksAtOnce == 0 && HWY_UNLIKELY(!at.Inside())) return false;
      V8 values[kByteVectors];
      if constexpr (kElement == PairElement::kExponent) {
        for (V8& value : values) value = hn::Load(D8(), PlaneBytes(kMissBase));
      } else {
        bases.template Load<kStep>(values);
      }
      uint64_t next = Load64(block + kRaw);
      AddWhere<kStep * kFirst.add[0]>(next, values);
      if constexpr (kFirst.bits == 2) {
        const uint64_t second = Load64(block + kRaw + 8);
        AddWhere<kStep * kFirst.add[1]>(second, values);
        next &= second;
      }
      const uint64_t patched = AddLevels<kElement, 1, kStep>(next, at, values);
      JoinBlock<kElement>(block, values, out);
      if (HWY_UNLIKELY(patched != 0)) {
        if (!Patch<kElement>(patched, at.patch, patches_end, out)) return false;
      }
    }
  }
  for (int level = 1; level < kLadder.num_levels; ++level) {
    if (!EndsAt(args.levels[level - 1], args.level_bytes[level - 1], at.bit[level - 1]))
      return false;
  }
  return at.patch == patches_end;
}

template <PairElement kElement>
bool DecodeElement(const PlaneDecodeArgs& args) {
  return args.layout == PairLayout::kTiles ? DecodeStrips<kElement, PairLayout::kTiles>(args)
                                           : DecodeStrips<kElement, PairLayout::kChunks>(args);
}

inline bool DecodePlanesSimd(const PlaneDecodeArgs& args) {
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

const PlaneKernels& PlaneTable(const char* name) {
  static const PlaneKernels table = {.name = name, .decode = DecodePlanesSimd};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const PlaneKernels*> SimdPlaneKernels() { VARVE_SIMD_TABLES(PlaneKernels, PlaneTable); }

}  // namespace varve
#endif  // HWY_ONCE
