// The specification of products with activations as integers; ships as the table "scalar".
//
// A stored block is integers, an f16 scale, and for some types an offset per run of 32 values:
//
//   weight = scale * integer + offset
//
// In blocks of 256 values the integer is code times run scale: at most 15 * 63 (Q4_K), 31 * 63
// (Q5_K), 32 * 128 (Q6_K), 3 * 15 (Q2_K), 4 * 32 (Q3_K) or 127 * 32 (IQ4_XS) in magnitude. Q2_K has
// an offset per half of a run. See scalar_weights.cc for the layouts.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "runtime/kernels/scalar_blocks.h"
#include "runtime/kernels/weights_tables.h"

namespace varve {
namespace {

template <int kBlockValues, int kOffsetRun = kRoundedRun>
struct IntegerBlock {
  float scale;
  int16_t values[kBlockValues];
  float offsets[kBlockValues / kOffsetRun];
};

void ReadQ8(const uint8_t* block, IntegerBlock<32>& out) {
  out = {.scale = F16At(block), .values = {}, .offsets = {}};
  for (int i = 0; i < 32; ++i) out.values[i] = static_cast<int8_t>(block[2 + i]);
}

template <bool kMin, bool kFifth>
void ReadNibbles(const uint8_t* block, IntegerBlock<32>& out) {
  out = {.scale = F16At(block), .values = {}, .offsets = {kMin ? F16At(block + 2) : 0.0f}};
  NibbleCodes<kMin, kFifth>(block, out.values);
}

template <bool kFifth>
void ReadQ45K(const uint8_t* block, IntegerBlock<256>& out) {
  out.scale = F16At(block);
  const float min = F16At(block + 2);
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = block + (kFifth ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    int run_scale;
    int run_min;
    UnpackRunScale(block + 4, j, &run_scale, &run_min);
    out.offsets[j] = -(min * static_cast<float>(run_min));
    for (int i = 0; i < 32; ++i) {
      int code = nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      if (kFifth) code |= (fifth[i] >> j & 1) << 4;
      out.values[j * 32 + i] = static_cast<int16_t>(code * run_scale);
    }
  }
}

void ReadQ6K(const uint8_t* block, IntegerBlock<256>& out) {
  out = {.scale = F16At(block + 208), .values = {}, .offsets = {}};
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int j = i % 128;
    const int low = block[half * 64 + j % 64] >> (j / 64 * 4) & 15;
    const int high = block[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
    const int run_scale = static_cast<int8_t>(block[192 + i / 16]);
    out.values[i] = static_cast<int16_t>(((low | high << 4) - 32) * run_scale);
  }
}

void ReadQ2K(const uint8_t* block, IntegerBlock<256, kRoundedHalf>& out) {
  out.scale = F16At(block + 80);
  const float min = F16At(block + 82);
  for (int j = 0; j < 16; ++j) out.offsets[j] = -(min * static_cast<float>(block[j] >> 4));
  for (int i = 0; i < 256; ++i) {
    out.values[i] = static_cast<int16_t>(BitPair(block + 16, i) * (block[i / 16] & 15));
  }
}

void ReadQ3K(const uint8_t* block, IntegerBlock<256>& out) {
  out = {.scale = F16At(block + 108), .values = {}, .offsets = {}};
  for (int i = 0; i < 256; ++i) {
    const int third = block[i % 32] >> (i / 32) & 1;
    const int code = (BitPair(block + 32, i) | third << 2) - 4;
    out.values[i] = static_cast<int16_t>(code * UnpackHalfScale(block + 96, i / 16));
  }
}

void ReadIQ4NL(const uint8_t* block, IntegerBlock<32>& out) {
  out = {.scale = F16At(block), .values = {}, .offsets = {}};
  LookUpNibbles(block + 2, out.values);
}

void ReadIQ4XS(const uint8_t* block, IntegerBlock<256>& out) {
  out = {.scale = F16At(block), .values = {}, .offsets = {}};
  for (int j = 0; j < 8; ++j) {
    int16_t* values = out.values + j * 32;
    LookUpNibbles(block + 8 + j * 16, values);
    const int run_scale = UnpackLookupScale(block, j);
    for (int i = 0; i < 32; ++i) values[i] = static_cast<int16_t>(values[i] * run_scale);
  }
}

// The sum of the codes that share offset j of a row.
template <int kOffsetRun>
float SumOf(const RoundedInput& x, int64_t j) {
  return kOffsetRun == kRoundedHalf ? static_cast<float>(x.half_sums[j]) : x.sums[j];
}

template <auto kRead, int kBlockValues, int kBytes, int kOffsetRun>
void MultiplyRounded(const WeightMatrix& matrix, int64_t begin, int64_t end,
                     const RoundedInput* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  for (int64_t row = begin; row < end; ++row) {
    const uint8_t* from = reinterpret_cast<const uint8_t*>(matrix.row(row));
    float sums[kMaxRowTokens] = {};
    for (int64_t i = 0; i < matrix.cols; i += kBlockValues, from += kBytes) {
      IntegerBlock<kBlockValues, kOffsetRun> block;
      kRead(from, block);
      for (int t = 0; t < num_tokens; ++t) {
        const RoundedInput& x = inputs[t];
        int64_t sum = 0;
        for (int j = 0; j < kBlockValues; ++j) sum += block.values[j] * x.codes[i + j];
        float offset = 0;
        for (int j = 0; j < kBlockValues; j += kOffsetRun) {
          offset += block.offsets[j / kOffsetRun] * SumOf<kOffsetRun>(x, (i + j) / kOffsetRun);
        }
        sums[t] += x.scales[i / kBlockValues] * (block.scale * static_cast<float>(sum) + offset);
      }
    }
    for (int t = 0; t < num_tokens; ++t) out[t * out_stride + (row - begin)] = sums[t];
  }
}

// A block of the input with codes up to `most`; returns its scale.
float RoundBlock(const float* values, int block, int most, int16_t* codes, float* sums) {
  uint32_t largest =
      0;  // magnitudes as integers: the same order, NaN above infinity above all else
  for (int i = 0; i < block; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF);
  }
  const RoundingStep step = StepOf(std::bit_cast<float>(largest), most);
  for (int run = 0; run < block; run += kRoundedRun) {
    int32_t sum = 0;
    for (int i = run; i < run + kRoundedRun; ++i) {
      const float scaled = step.inverse == 0 ? 0.0f : values[i] * step.inverse;
      codes[i] = static_cast<int16_t>(std::nearbyint(scaled));
      sum += codes[i];
    }
    sums[run / kRoundedRun] = static_cast<float>(sum);
  }
  return step.scale;
}

void RoundInput(const float* values, int64_t count, int block, int16_t* codes, float* scales,
                float* sums) {
  for (int64_t i = 0; i < count; i += block) {
    scales[i / block] =
        RoundBlock(values + i, block, kRoundedMost, codes + i, sums + i / kRoundedRun);
  }
}

template <auto kRead, int kBlockValues, int kBytes, bool kOffsets, int kOffsetRun>
void DecodeIntegers(const std::byte* blocks, int64_t count, int16_t* values, float* scales,
                    float* offsets) {
  const uint8_t* from = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; i += kBlockValues, from += kBytes) {
    IntegerBlock<kBlockValues, kOffsetRun> block;
    kRead(from, block);
    std::copy(std::begin(block.values), std::end(block.values), values + i);
    scales[i / kBlockValues] = block.scale;
    if (kOffsets) {
      std::copy(std::begin(block.offsets), std::end(block.offsets), offsets + i / kOffsetRun);
    }
  }
}

void PackInputs(const float* values, ptrdiff_t stride, int num_tokens, int64_t cols, int block,
                int16_t* codes, float* scales, float* sums, float* half_sums) {
  for (int64_t i = 0; i < cols; i += block) {
    for (int t = 0; t < kPackedTokens; ++t) {
      int16_t rounded[256] = {};
      float run_sums[8] = {};
      float scale = 0;
      if (t < num_tokens) {
        scale = RoundBlock(values + t * stride + i, block, kPackedMost, rounded, run_sums);
      }
      for (int c = 0; c < block; ++c) {
        codes[((i + c) / 2 * kPackedTokens + t) * 2 + c % 2] = rounded[c];
      }
      scales[i / block * kPackedTokens + t] = scale;
      for (int run = 0; run < block / kRoundedRun; ++run) {
        sums[(i / kRoundedRun + run) * kPackedTokens + t] = scale * run_sums[run];
      }
      for (int c = 0; c < block; c += kRoundedHalf) {
        const int32_t sum = std::accumulate(rounded + c, rounded + c + kRoundedHalf, int32_t{0});
        half_sums[(i + c) / kRoundedHalf * kPackedTokens + t] = scale * static_cast<float>(sum);
      }
    }
  }
}

// One row with one token.
float DotIntegers(const IntegerTile& tile, const PackedInputs& inputs, int64_t row, int token) {
  const int64_t group = token / kPackedTokens;
  const int64_t lane = token % kPackedTokens;
  const int64_t num_blocks = tile.cols / tile.block;
  const int64_t num_runs = tile.cols / tile.offset_run;
  const int16_t* codes = inputs.codes + group * tile.cols * kPackedTokens + 2 * lane;
  const float* scales = inputs.scales + group * num_blocks * kPackedTokens + lane;
  const float* sums = (tile.offset_run == kRoundedHalf ? inputs.half_sums : inputs.sums) +
                      group * num_runs * kPackedTokens + lane;
  float sum = 0;
  for (int64_t begin = 0; begin < tile.cols; begin += tile.span) {
    int32_t dot = 0;
    for (int64_t c = begin; c < begin + tile.span; ++c) {
      dot += tile.values[row * tile.cols + c] * codes[c / 2 * 2 * kPackedTokens + c % 2];
    }
    const int64_t block = begin / tile.block;
    sum += static_cast<float>(dot) *
           (tile.scales[row * num_blocks + block] * scales[block * kPackedTokens]);
  }
  if (tile.offsets == nullptr) return sum;
  for (int64_t run = 0; run < num_runs; ++run) {
    sum += tile.offsets[row * num_runs + run] * sums[run * kPackedTokens];
  }
  return sum;
}

void MultiplyIntegers(const IntegerTile& tile, const PackedInputs& inputs, float* /*sums*/,
                      float* out, ptrdiff_t out_stride) {
  for (int t = 0; t < inputs.num_tokens; ++t) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      out[t * out_stride + r] = DotIntegers(tile, inputs, r, t);
    }
  }
}

template <auto kRead, int kBlockValues, int kBytes, bool kOffsets, int kOffsetRun = kRoundedRun>
void SetType(RoundedKernels& table, WeightType type) {
  table.multiply_rounded[static_cast<int>(type)] =
      MultiplyRounded<kRead, kBlockValues, kBytes, kOffsetRun>;
  table.decode_integers[static_cast<int>(type)] =
      DecodeIntegers<kRead, kBlockValues, kBytes, kOffsets, kOffsetRun>;
}

}  // namespace

const RoundedKernels& ScalarRoundedKernels() {
  static const RoundedKernels table = [] {
    RoundedKernels made = {.name = "scalar",
                           .round_input = RoundInput,
                           .multiply_rounded = {},
                           .multiply_woven = {},
                           .decode_integers = {},
                           .pack_inputs = PackInputs,
                           .multiply_integers = MultiplyIntegers};
    SetType<ReadQ8, 32, 34, false>(made, WeightType::kQ8_0);
    SetType<ReadNibbles<false, false>, 32, 18, false>(made, WeightType::kQ4_0);
    SetType<ReadNibbles<true, false>, 32, 20, true>(made, WeightType::kQ4_1);
    SetType<ReadNibbles<false, true>, 32, 22, false>(made, WeightType::kQ5_0);
    SetType<ReadNibbles<true, true>, 32, 24, true>(made, WeightType::kQ5_1);
    SetType<ReadQ45K<false>, 256, 144, true>(made, WeightType::kQ4K);
    SetType<ReadQ45K<true>, 256, 176, true>(made, WeightType::kQ5K);
    SetType<ReadQ6K, 256, 210, false>(made, WeightType::kQ6K);
    SetType<ReadQ2K, 256, 84, true, kRoundedHalf>(made, WeightType::kQ2K);
    SetType<ReadQ3K, 256, 110, false>(made, WeightType::kQ3K);
    SetType<ReadIQ4NL, 32, 18, false>(made, WeightType::kIQ4_NL);
    SetType<ReadIQ4XS, 256, 136, false>(made, WeightType::kIQ4_XS);
    return made;
  }();
  return table;
}

}  // namespace varve
