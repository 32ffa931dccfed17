#include "runtime/kernels/weights_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/kernels.h"

namespace varve {
namespace {

constexpr int kHalf = kBlockValues / 2;

bool PutF16(float value, std::byte* to) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(to, &bits, sizeof(bits));
  return (bits & 0x7C00u) != 0x7C00u;
}

// The layout that NibbleCodes of scalar_blocks.h reads, behind scale and minimum.
template <bool kFifth>
void PutCodes(const uint8_t* codes, std::byte* to) {
  if (kFifth) {
    uint32_t fifth = 0;
    for (int i = 0; i < kBlockValues; ++i) fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(to, &fifth, sizeof(fifth));
    to += sizeof(fifth);
  }
  for (int i = 0; i < kHalf; ++i) {
    to[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + kHalf] & 15) << 4);
  }
}

// Q4_1 and Q5_1: from the least value up, rounded half up.
template <int kMost>
bool EncodeFromMinimum(const float* values, std::byte* out) {
  const auto [least, greatest] = std::minmax_element(values, values + kBlockValues);
  const float minimum = *least;
  const float scale = (*greatest - minimum) / kMost;
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  const bool fits = PutF16(scale, out) && PutF16(minimum, out + 2);
  if (!fits) return false;
  uint8_t codes[kBlockValues];
  for (int i = 0; i < kBlockValues; ++i) {
    codes[i] = static_cast<uint8_t>(
        std::min(static_cast<float>(kMost), (values[i] - minimum) * inverse + 0.5f));
  }
  PutCodes<(kMost > 15)>(codes, out + 4);
  return true;
}

// Q5_0: the value of the largest magnitude becomes code 0.
bool EncodeAroundZero(const float* values, std::byte* out) {
  constexpr float kCentre = 16;
  const float most = *std::max_element(values, values + kBlockValues,
                                       [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = most / -kCentre;
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  if (!PutF16(scale, out)) return false;
  uint8_t codes[kBlockValues];
  for (int i = 0; i < kBlockValues; ++i) {
    codes[i] = static_cast<uint8_t>(std::min(31.0f, values[i] * inverse + kCentre + 0.5f));
  }
  PutCodes<true>(codes, out + 2);
  return true;
}

bool EncodeByKernel(BlockType type, const float* values, std::byte* out) {
  uint16_t scale = 0;
  uint8_t codes[kBlockValues];
  const size_t code_bytes = BlockCodeBytes(type);
  const uint64_t replaced =
      ActiveKernels().quantize_blocks[static_cast<int>(type)](values, 1, &scale, codes);
  std::memcpy(out, &scale, sizeof(scale));
  std::memcpy(out + sizeof(scale), codes, code_bytes);
  return replaced == 0;
}

bool EncodeBlock(WeightType type, const float* values, std::byte* out) {
  switch (type) {
    case WeightType::kQ8_0:
      return EncodeByKernel(BlockType::kQ8, values, out);
    case WeightType::kQ4_0:
      return EncodeByKernel(BlockType::kQ4, values, out);
    case WeightType::kQ4_1:
      return EncodeFromMinimum<15>(values, out);
    case WeightType::kQ5_1:
      return EncodeFromMinimum<31>(values, out);
    default:
      return EncodeAroundZero(values, out);  // Q5_0
  }
}

bool EncodeFloats(WeightType type, const float* values, int64_t count, std::byte* out) {
  if (type == WeightType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return true;
  }
  bool fits = true;
  for (int64_t i = 0; i < count; ++i) {
    const bool is_f16 = type == WeightType::kF16;
    const uint16_t bits = is_f16 ? F32ToF16(values[i]) : F32ToBF16(values[i]);
    const uint16_t infinity = is_f16 ? 0x7C00 : 0x7F80;
    fits = fits && (bits & infinity) != infinity;
    std::memcpy(out + i * 2, &bits, sizeof(bits));
  }
  return fits;
}

}  // namespace

bool CanEncodeWeights(WeightType type) { return type <= WeightType::kQ5_1; }

bool EncodeWeights(WeightType type, const float* values, int64_t count, std::byte* out) {
  const WeightTypeInfo& info = InfoOf(type);
  if (info.block_values == 1) return EncodeFloats(type, values, count, out);
  bool fits = true;
  for (int64_t i = 0; i < count; i += info.block_values, out += info.block_bytes) {
    fits = EncodeBlock(type, values + i, out) && fits;
  }
  return fits;
}

}  // namespace varve
