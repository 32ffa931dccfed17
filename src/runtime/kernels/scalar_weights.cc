// The specification: every weight format decoded, and rows of floats multiplied, in plain C++.
// Ships as the table "scalar"; the vector tables are tested against it. Integers:
// scalar_rounded.cc.
//
// Decoding is exact in all of them: a code times its scale has at most 11 + 7 + 5 significant bits
// (Q6_K), so the product never rounds, and a minimum is added with one rounding, fused or not.

#include <cstring>

#include "base/half.h"
#include "runtime/kernels/run_scale.h"
#include "runtime/kernels/weights_tables.h"

namespace varve {
namespace {

float LoadF16(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return F16ToF32(bits);
}

void DecodeF32(const uint8_t* from, float* out) { std::memcpy(out, from, 4); }

void DecodeF16(const uint8_t* from, float* out) { *out = LoadF16(from); }

void DecodeBF16(const uint8_t* from, float* out) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  *out = BF16ToF32(bits);
}

// f16 scale, int8 code[32].
void DecodeQ8_0(const uint8_t* block, float* out) {
  const float scale = LoadF16(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<int8_t>(block[2 + i]);
}

// f16 scale, (kMin: f16 minimum,) (kFifth: u32 of fifth bits,) 16 bytes: the low nibbles are values
// 0-15, the high ones 16-31. Without a minimum the codes are centred.
template <bool kMin, bool kFifth>
void DecodeNibbles(const uint8_t* block, float* out) {
  const float scale = LoadF16(block);
  const float min = kMin ? LoadF16(block + 2) : 0.0f;
  const uint8_t* at = block + (kMin ? 4 : 2);
  uint32_t fifth = 0;
  if (kFifth) {
    std::memcpy(&fifth, at, 4);
    at += 4;
  }
  const int centre = kMin ? 0 : kFifth ? 16 : 8;
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? at[i] & 15 : at[i - 16] >> 4;
    const int code = nibble | static_cast<int>((fifth >> i) & 1) << 4;
    out[i] =
        kMin ? scale * static_cast<float>(code) + min : scale * static_cast<float>(code - centre);
  }
}

// f16 scale, f16 minimum, 12 bytes of run scales, (kFifth: 32 bytes, bit j of byte i belongs to
// value i of run j,) 128 bytes: of each 32, the low nibbles are run 2g, the high ones run 2g + 1.
template <bool kFifth>
void DecodeQ45K(const uint8_t* block, float* out) {
  const float scale = LoadF16(block);
  const float min = LoadF16(block + 2);
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = block + (kFifth ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    int run_scale;
    int run_min;
    UnpackRunScale(block + 4, j, &run_scale, &run_min);
    const float d = scale * static_cast<float>(run_scale);
    const float m = min * static_cast<float>(run_min);
    for (int i = 0; i < 32; ++i) {
      int code = nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      if (kFifth) code |= (fifth[i] >> j & 1) << 4;
      out[j * 32 + i] = d * static_cast<float>(code) - m;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, int8 scale of each 16 values, f16 scale.
// Each half of the block (128 values) has 64 and 32 bytes of them.
void DecodeQ6K(const uint8_t* block, float* out) {
  const float scale = LoadF16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int j = i % 128;
    const int low = block[half * 64 + j % 64] >> (j / 64 * 4) & 15;
    const int high = block[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
    const float d = scale * static_cast<int8_t>(block[192 + i / 16]);
    out[i] = d * static_cast<float>((low | high << 4) - 32);
  }
}

template <auto kDecodeBlock, int kValues, int kBytes>
void Decode(const std::byte* blocks, int64_t count, float* out) {
  const uint8_t* block = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; i += kValues, block += kBytes) kDecodeBlock(block, out + i);
}

template <auto kDecodeValue, int kBytes>
void MultiplyRows(const WeightMatrix& matrix, int64_t begin, int64_t end,
                  const float* const* inputs, int num_tokens, float* out, ptrdiff_t out_stride) {
  for (int64_t row = begin; row < end; ++row) {
    const uint8_t* at = reinterpret_cast<const uint8_t*>(matrix.row(row));
    float sums[kMaxRowTokens] = {};
    for (int64_t i = 0; i < matrix.cols; ++i, at += kBytes) {
      float weight;
      kDecodeValue(at, &weight);
      for (int t = 0; t < num_tokens; ++t) sums[t] += weight * inputs[t][i];
    }
    for (int t = 0; t < num_tokens; ++t) out[t * out_stride + (row - begin)] = sums[t];
  }
}

void NarrowBF16(const float* values, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = F32ToBF16(values[i]);
}

}  // namespace

const WeightKernels& ScalarWeightKernels() {
  static const WeightKernels table = {
      .name = "scalar",
      .decode = {Decode<DecodeF32, 1, 4>, Decode<DecodeF16, 1, 2>, Decode<DecodeBF16, 1, 2>,
                 Decode<DecodeQ8_0, 32, 34>, Decode<DecodeNibbles<false, false>, 32, 18>,
                 Decode<DecodeNibbles<true, false>, 32, 20>,
                 Decode<DecodeNibbles<false, true>, 32, 22>,
                 Decode<DecodeNibbles<true, true>, 32, 24>, Decode<DecodeQ45K<false>, 256, 144>,
                 Decode<DecodeQ45K<true>, 256, 176>, Decode<DecodeQ6K, 256, 210>},
      .multiply_rows = {MultiplyRows<DecodeF32, 4>, MultiplyRows<DecodeF16, 2>,
                        MultiplyRows<DecodeBF16, 2>},
      .narrow_bf16 = NarrowBF16,
      .rounded = nullptr,
  };
  return table;
}

}  // namespace varve
