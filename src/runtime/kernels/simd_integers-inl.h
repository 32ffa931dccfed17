// Products of a tile of integers with packed activations, for every target; see integer_tile.h.
//
// Works in blocks of kRows rows x kGroups groups of tokens: a pair of columns costs one load per
// vector of tokens, one broadcast per row, and one instruction per sum. After `span` columns the
// integer sums are scaled and added to floats in memory. A sum depends neither on its block nor on
// the other tokens.

#if defined(VARVE_RUNTIME_KERNELS_SIMD_INTEGERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_RUNTIME_KERNELS_SIMD_INTEGERS_INL_H_
#undef VARVE_RUNTIME_KERNELS_SIMD_INTEGERS_INL_H_
#else
#define VARVE_RUNTIME_KERNELS_SIMD_INTEGERS_INL_H_
#endif

#include <algorithm>

#include "runtime/kernels/integer_tile.h"
#include "runtime/kernels/simd_weights_runs-inl.h"
#include "runtime/kernels/simd_weights_short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

inline constexpr int kGroupVectors = static_cast<int>(kPackedTokens / kLanes);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kMostGroups = 4;    // with 6 rows: 24 sums, 4 inputs, 1 weight of 32 registers
inline constexpr int kIntegerRows = 12;  // with up to 2 groups
#else
inline constexpr int kMostGroups = 1;
inline constexpr int kIntegerRows = kLanes == 8 ? 4 : 2;  // 8 sums of 16 registers
#endif
static_assert(kMostGroups * kPackedTokens <= kIntegerTokens);

// Two weights of one row in all lanes.
HWY_INLINE VI BroadcastPair(const int16_t* from) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // GCC 12 would go through a general register.
  VI pair;
  __asm__("vpbroadcastd %1, %0" : "=v"(pair.raw) : "m"(*reinterpret_cast<const int32_t*>(from)));
  return pair;
#else
  int32_t pair;
  __builtin_memcpy(&pair, from, 4);
  return hn::Set(DI(), pair);
#endif
}

// Where the lanes of vector v, counted from the first group of a block on, are.
HWY_INLINE constexpr int64_t GroupOf(int v) { return v / kGroupVectors; }
HWY_INLINE constexpr int64_t LaneOf(int v) { return v % kGroupVectors * static_cast<int>(kLanes); }

// sums[row][64] += products of `tile.span` columns from `column` on.
template <int kGroups, int kRows>
HWY_INLINE void AddSpan(const IntegerTile& tile, const PackedInputs& inputs, int64_t group,
                        int64_t row, int64_t column, float* sums) {
  constexpr int kVectors = kGroups * kGroupVectors;
  const DF df;
  VI dots[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) dots[r][v] = hn::Zero(DI());
  }
  const int16_t* x = inputs.codes + (group * tile.cols + column) * kPackedTokens;
  const int16_t* w = tile.values + row * tile.cols + column;
  for (int c = 0; c < tile.span; c += 2, x += 2 * kPackedTokens, w += 2) {
    VI pairs[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int16_t* from = x + GroupOf(v) * tile.cols * kPackedTokens + 2 * LaneOf(v);
      pairs[v] = hn::Load(DI(), reinterpret_cast<const int32_t*>(from));
    }
    for (int r = 0; r < kRows; ++r) {
      const VI weights = BroadcastPair(w + r * tile.cols);
      for (int v = 0; v < kVectors; ++v) dots[r][v] = DotPairs(dots[r][v], weights, pairs[v]);
    }
  }
  // Apart from the sums of the loop, which GCC 12 would otherwise store in every turn.
  VI done[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) done[r][v] = dots[r][v];
  }
  const int64_t num_blocks = tile.cols / tile.block;
  const int64_t block = column / tile.block;
  for (int r = 0; r < kRows; ++r) {
    const VF scale = hn::Set(df, tile.scales[(row + r) * num_blocks + block]);
    float* to = sums + (row + r) * kIntegerTokens;
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = ((group + GroupOf(v)) * num_blocks + block) * kPackedTokens + LaneOf(v);
      const VF by = hn::Mul(scale, hn::Load(df, inputs.scales + at));
      const VF sum = hn::Load(df, to + v * kLanes);
      hn::Store(hn::MulAdd(hn::ConvertTo(df, done[r][v]), by, sum), df, to + v * kLanes);
    }
  }
}

// sums[row][64] += offset * sum of the inputs, for the runs [first, last). As in AddSpan, a load of
// inputs serves all rows and a broadcast all tokens.
template <int kGroups, int kRows>
HWY_INLINE void AddOffsets(const IntegerTile& tile, const PackedInputs& inputs, int64_t group,
                           int64_t row, int64_t first, int64_t last, float* sums) {
  constexpr int kVectors = kGroups * kGroupVectors;
  const DF df;
  const int64_t num_runs = tile.cols / tile.offset_run;
  const float* offsets = tile.offsets + row * num_runs;
  const float* x = (tile.offset_run == kRoundedHalf ? inputs.half_sums : inputs.sums) +
                   group * num_runs * kPackedTokens;
  float* to = sums + row * kIntegerTokens;
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = hn::Load(df, to + r * kIntegerTokens + v * kLanes);
  }
  for (int64_t run = first; run < last; ++run) {
    VF input[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      input[v] = hn::Load(df, x + (GroupOf(v) * num_runs + run) * kPackedTokens + LaneOf(v));
    }
    for (int r = 0; r < kRows; ++r) {
      const VF offset = hn::Set(df, offsets[r * num_runs + run]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(offset, input[v], sum[r][v]);
    }
  }
  VF done[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) done[r][v] = sum[r][v];
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(done[r][v], df, to + r * kIntegerTokens + v * kLanes);
    }
  }
}

template <int kGroups, int kRows>
HWY_INLINE void AddColumns(const IntegerTile& tile, const PackedInputs& inputs, int64_t group,
                           int64_t row, int64_t begin, int64_t end, float* sums) {
  for (int64_t column = begin; column < end; column += tile.span) {
    AddSpan<kGroups, kRows>(tile, inputs, group, row, column, sums);
  }
  if (tile.offsets == nullptr) return;
  AddOffsets<kGroups, kRows>(tile, inputs, group, row, begin / tile.offset_run,
                             end / tile.offset_run, sums);
}

// All rows with kGroups groups from `group` on; their sums begin at `sums`.
template <int kGroups, int kRows>
void AddGroups(const IntegerTile& tile, const PackedInputs& inputs, int64_t group, float* sums) {
  for (int64_t begin = 0; begin < tile.cols; begin += kIntegerColumns) {
    const int64_t end = std::min<int64_t>(begin + kIntegerColumns, tile.cols);
    int64_t row = 0;
    for (; row + kRows <= tile.rows; row += kRows) {
      AddColumns<kGroups, kRows>(tile, inputs, group, row, begin, end, sums);
    }
    for (; row < tile.rows; ++row) {
      AddColumns<kGroups, 1>(tile, inputs, group, row, begin, end, sums);
    }
  }
}

// Four rows of four tokens: out[t * out_stride + r] = sums[r][t].
HWY_INLINE void StoreFourByFour(const float* sums, float* out, ptrdiff_t out_stride) {
  using D = hn::FixedTag<float, 4>;
  using Pairs = hn::Repartition<uint64_t, D>;
  const D d;
  const Pairs pairs;
  hn::Vec<D> row[4];
  for (int r = 0; r < 4; ++r) row[r] = hn::Load(d, sums + r * kIntegerTokens);
  for (int half = 0; half < 2; ++half) {
    const auto mix = [&](int r) HWY_ATTR {
      return hn::BitCast(pairs, half == 0 ? hn::InterleaveLower(d, row[r], row[r + 1])
                                          : hn::InterleaveUpper(d, row[r], row[r + 1]));
    };
    float* to = out + 2 * half * out_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, mix(0), mix(2))), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, mix(0), mix(2))), d, to + out_stride);
  }
}

// out[t * out_stride + r] = sums[r][t] for t < count.
inline void StoreTokens(const float* sums, int64_t rows, int count, float* out,
                        ptrdiff_t out_stride) {
  int t = 0;
  int64_t r = 0;
  for (; t + 4 <= count; t += 4) {
    for (r = 0; r + 4 <= rows; r += 4) {
      StoreFourByFour(sums + r * kIntegerTokens + t, out + t * out_stride + r, out_stride);
    }
  }
  const int64_t done_rows = r;
  for (int token = 0; token < count; ++token) {
    float* to = out + token * out_stride;
    for (r = token < t ? done_rows : 0; r < rows; ++r) to[r] = sums[r * kIntegerTokens + token];
  }
}

inline void MultiplyIntegers(const IntegerTile& tile, const PackedInputs& inputs, float* sums,
                             float* out, ptrdiff_t out_stride) {
  const int num_groups = (inputs.num_tokens + kPackedTokens - 1) / kPackedTokens;
  for (int group = 0; group < num_groups;) {
    std::fill(sums, sums + tile.rows * kIntegerTokens, 0.0f);
    int groups = 1;
    if constexpr (kMostGroups == 4) {
      if (num_groups - group >= 4) {
        groups = 4;
        AddGroups<4, kIntegerRows / 2>(tile, inputs, group, sums);
      } else if (num_groups - group >= 2) {
        groups = 2;
        AddGroups<2, kIntegerRows>(tile, inputs, group, sums);
      }
    }
    if (groups == 1) AddGroups<1, kIntegerRows>(tile, inputs, group, sums);
    const int first = group * kPackedTokens;
    const int count = std::min(groups * kPackedTokens, inputs.num_tokens - first);
    StoreTokens(sums, tile.rows, count, out + first * out_stride, out_stride);
    group += groups;
  }
}

// Of kRoundedHalf codes; exact.
HWY_INLINE float SumOfHalf(const int16_t* codes) {
  const auto one = hn::Set(hn::FixedTag<int16_t, 8>(), 1);
  PairSums<hn::FixedTag<int32_t, 4>> sums;
  sums.Add(one, codes);
  sums.Add(one, codes + 8);
  return hn::GetLane(hn::SumOfLanes(D4(), sums.Floats()));
}

// One group; see PackedInputs.
inline void PackInputs(const float* values, ptrdiff_t stride, int num_tokens, int64_t cols,
                       int block, int16_t* codes, float* scales, float* sums, float* half_sums) {
  int16_t rounded[kPackedTokens][256];
  float run_sums[kPackedTokens][8];
  std::fill(&rounded[0][0], &rounded[0][0] + kPackedTokens * 256, int16_t{0});
  std::fill(&run_sums[0][0], &run_sums[0][0] + kPackedTokens * 8, 0.0f);
  const int runs = block / kRoundedRun;
  for (int64_t i = 0; i < cols; i += block) {
    for (int t = 0; t < kPackedTokens; ++t) {
      float scale = 0;
      if (t < num_tokens) {
        scale = RoundBlock(values + t * stride + i, block, kPackedMost, rounded[t], run_sums[t]);
      }
      scales[t] = scale;
      for (int run = 0; run < runs; ++run) {
        sums[run * kPackedTokens + t] = scale * run_sums[t][run];
      }
      for (int half = 0; half < 2 * runs; ++half) {
        half_sums[half * kPackedTokens + t] = scale * SumOfHalf(rounded[t] + half * kRoundedHalf);
      }
    }
    for (int c = 0; c < block; c += 2) {
      for (int t = 0; t < kPackedTokens; ++t) {
        __builtin_memcpy(codes + (c * kPackedTokens + 2 * t), &rounded[t][c], 4);
      }
    }
    codes += block * kPackedTokens;
    scales += kPackedTokens;
    sums += runs * kPackedTokens;
    half_sums += 2 * runs * kPackedTokens;
  }
}

template <class Block>
void DecodeShortIntegers(const std::byte* blocks, int64_t count, int16_t* values, float* scales,
                         float* offsets) {
  const typename Block::D16 d;
  const uint8_t* block = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; i += 32, block += Block::kBytes) {
    hn::Vec<typename Block::D16> codes[Block::kVectors];
    Block::Widen(block, codes);
    for (int v = 0; v < Block::kVectors; ++v) {
      if constexpr (Block::kOffset == Offset::kCentre) {
        codes[v] = hn::Sub(codes[v], hn::Set(d, Block::kCentre));
      }
      hn::StoreU(codes[v], d, values + i + v * (32 / Block::kVectors));
    }
    scales[i / 32] = hn::GetLane(BroadcastF16(D4(), block));
    if constexpr (Block::kOffset == Offset::kMin) {
      offsets[i / 32] = hn::GetLane(BroadcastF16(D4(), block + 2));
    }
  }
}

struct StoreIntegers {
  int16_t* out;
  HWY_INLINE void Add(int v, int i, VI16 integers) {
    hn::StoreU(integers, DI16(), out + i + v * kCodeLanes);
  }
};

template <class Block>
void DecodeRunIntegers(const std::byte* blocks, int64_t count, int16_t* values, float* scales,
                       float* offsets) {
  const uint8_t* block = reinterpret_cast<const uint8_t*>(blocks);
  const float one = 1.0f;
  const RoundedInput unit = {
      .codes = nullptr, .scales = &one, .sums = nullptr, .half_sums = nullptr};
  for (int64_t i = 0; i < count; i += 256, block += Block::kBytes) {
    StoreIntegers use = {values + i};
    BlockFields fields[1];
    Block::ReadFields(block, &unit, 0, fields);
    scales[i / 256] = fields[0].values[0];
    typename Block::Scales run_scales;
    RunMinima minima;
    Block::ReadScales(block, run_scales, minima);
    for (int j = 0; j < Block::kMinima; ++j) {
      *offsets++ = -(fields[0].values[1] * static_cast<float>(minima.bytes[j]));
    }
    Block::Visit(block, run_scales, use);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
