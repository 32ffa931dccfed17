// The specification: every weight format decoded, and rows of floats multiplied, in plain C++.
// Ships as the table "scalar"; the vector tables are tested against it. Integers:
// scalar_rounded.cc.
//
// Decoding is exact in all of them: a code times its scale has at most 11 + 7 + 5 significant bits
// (Q6_K, IQ4_XS), so the product never rounds, and a minimum is added with one rounding, fused or
// not.

#include <cstring>

#include "base/half.h"
#include "runtime/kernels/scalar_blocks.h"
#include "runtime/kernels/weights_tables.h"

namespace varve {
namespace {

void DecodeF32(const uint8_t* from, float* out) { std::memcpy(out, from, 4); }

void DecodeF16(const uint8_t* from, float* out) { *out = F16At(from); }

void DecodeBF16(const uint8_t* from, float* out) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  *out = BF16ToF32(bits);
}

// f16 scale, int8 code[32].
void DecodeQ8(const uint8_t* block, float* out) {
  const float scale = F16At(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<int8_t>(block[2 + i]);
}

template <bool kMin, bool kFifth>
void DecodeNibbles(const uint8_t* block, float* out) {
  const float scale = F16At(block);
  const float min = kMin ? F16At(block + 2) : 0.0f;
  int16_t codes[32];
  NibbleCodes<kMin, kFifth>(block, codes);
  for (int i = 0; i < 32; ++i) {
    const float value = scale * static_cast<float>(codes[i]);
    out[i] = kMin ? value + min : value;
  }
}

// f16 scale, f16 minimum, 12 bytes of run scales, (kFifth: 32 bytes, bit j of byte i belongs to
// value i of run j,) 128 bytes: of each 32, the low nibbles are run 2g, the high ones run 2g + 1.
template <bool kFifth>
void DecodeQ45K(const uint8_t* block, float* out) {
  const float scale = F16At(block);
  const float min = F16At(block + 2);
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
  const float scale = F16At(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int j = i % 128;
    const int low = block[half * 64 + j % 64] >> (j / 64 * 4) & 15;
    const int high = block[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
    const float d = scale * static_cast<int8_t>(block[192 + i / 16]);
    out[i] = d * static_cast<float>((low | high << 4) - 32);
  }
}

// For each 16 values a byte: scale in the low nibble, minimum in the high one; 64 bytes of bit
// pairs, f16 scale, f16 minimum.
void DecodeQ2K(const uint8_t* block, float* out) {
  const float scale = F16At(block + 80);
  const float min = F16At(block + 82);
  for (int i = 0; i < 256; ++i) {
    const uint8_t both = block[i / 16];
    const float d = scale * static_cast<float>(both & 15);
    const float m = min * static_cast<float>(both >> 4);
    out[i] = d * static_cast<float>(BitPair(block + 16, i)) - m;
  }
}

// 32 bytes: bit j of byte k is the third bit of value k of run j; 64 bytes of bit pairs, 12 bytes
// of scales, f16 scale.
void DecodeQ3K(const uint8_t* block, float* out) {
  const float scale = F16At(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int third = block[i % 32] >> (i / 32) & 1;
    const float d = scale * static_cast<float>(UnpackHalfScale(block + 96, i / 16));
    out[i] = d * static_cast<float>((BitPair(block + 32, i) | third << 2) - 4);
  }
}

// f16 scale, 16 bytes of nibbles.
void DecodeIQ4NL(const uint8_t* block, float* out) {
  const float scale = F16At(block);
  int16_t values[32];
  LookUpNibbles(block + 2, values);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(values[i]);
}

// f16 scale, 6 bytes of run scales, 128 bytes of nibbles, 16 for each run of 32 values.
void DecodeIQ4XS(const uint8_t* block, float* out) {
  const float scale = F16At(block);
  for (int j = 0; j < 8; ++j) {
    const float d = scale * static_cast<float>(UnpackLookupScale(block, j));
    int16_t values[32];
    LookUpNibbles(block + 8 + j * 16, values);
    for (int i = 0; i < 32; ++i) out[j * 32 + i] = d * static_cast<float>(values[i]);
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

}  // namespace

const WeightKernels& ScalarWeightKernels() {
  static const WeightKernels table = {
      .name = "scalar",
      .decode = {Decode<DecodeF32, 1, 4>, Decode<DecodeF16, 1, 2>, Decode<DecodeBF16, 1, 2>,
                 Decode<DecodeQ8, 32, 34>, Decode<DecodeNibbles<false, false>, 32, 18>,
                 Decode<DecodeNibbles<true, false>, 32, 20>,
                 Decode<DecodeNibbles<false, true>, 32, 22>,
                 Decode<DecodeNibbles<true, true>, 32, 24>, Decode<DecodeQ45K<false>, 256, 144>,
                 Decode<DecodeQ45K<true>, 256, 176>, Decode<DecodeQ6K, 256, 210>,
                 Decode<DecodeQ2K, 256, 84>, Decode<DecodeQ3K, 256, 110>,
                 Decode<DecodeIQ4NL, 32, 18>, Decode<DecodeIQ4XS, 256, 136>},
      .multiply_rows = {MultiplyRows<DecodeF32, 4>, MultiplyRows<DecodeF16, 2>,
                        MultiplyRows<DecodeBF16, 2>},
      .rounded = nullptr,
  };
  return table;
}

}  // namespace varve
