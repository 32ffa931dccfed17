#include "runtime/kernels/weights_random.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/random.h"

namespace varve {
namespace {

class Bits : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  // Four uniform numbers added: near enough to a bell, deviation 1.
  float Bell() {
    const uint64_t x = Next();
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>((x >> (16 * i)) & 0xFFFF) - 32768;
    return static_cast<float>(sum) * (1.7320508f / 65536.0f);
  }
  // 0.5 to 1.5, of either sign: scales differ from block to block, and the mean that codes of Q4_0,
  // Q5_0 and IQ4_NL have does not add up over a row.
  float Factor() {
    const uint64_t x = Next();
    const float factor = 0.5f + static_cast<float>(x >> 40) * 0x1p-24f;
    return (x & 1) != 0 ? -factor : factor;
  }
};

void PutF16(float value, std::byte* to) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(to, &bits, 2);
}

// Standard deviation of random codes under a scale of 1, and the minimum that centres them, in
// scales. The factor of 0.5 to 1.5 adds 4 %, which does not matter here.
struct Spread {
  float deviation;
  float centre;  // 0: the codes are signed
  int scale_at;  // byte offsets of the f16 fields
  int minimum_at;
  float sign;  // of the minimum
};

Spread SpreadOf(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return {73.9f, 0.0f, 0, 0, 0.0f};
    case WeightType::kQ4_0:
      return {4.64f, 0.0f, 0, 0, 0.0f};
    case WeightType::kQ4_1:
      return {4.61f, 7.5f, 0, 2, -1.0f};
    case WeightType::kQ5_0:
      return {9.25f, 0.0f, 0, 0, 0.0f};
    case WeightType::kQ5_1:
      return {9.23f, 15.5f, 0, 2, -1.0f};
    case WeightType::kQ4K:
      return {258.0f, 7.5f, 0, 2, 1.0f};
    case WeightType::kQ5K:
      return {527.0f, 15.5f, 0, 2, 1.0f};
    case WeightType::kQ2K:
      return {13.9f, 1.5f, 80, 82, 1.0f};
    case WeightType::kQ3K:
      return {43.3f, 0.0f, 108, 0, 0.0f};
    case WeightType::kIQ4_NL:
      return {67.4f, 0.0f, 0, 0, 0.0f};
    case WeightType::kIQ4_XS:
      return {1246.0f, 0.0f, 0, 0, 0.0f};
    default:
      return {1367.0f, 0.0f, 208, 0, 0.0f};  // Q6_K
  }
}

void FillFloats(WeightType type, int64_t count, float deviation, Bits& bits, std::byte* out) {
  const int bytes = InfoOf(type).block_bytes;
  for (int64_t i = 0; i < count; ++i, out += bytes) {
    const float value = bits.Bell() * deviation;
    if (type == WeightType::kF32) {
      std::memcpy(out, &value, 4);
    } else {
      const uint16_t half = type == WeightType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      std::memcpy(out, &half, 2);
    }
  }
}

}  // namespace

void FillRandomWeights(WeightType type, int64_t count, float deviation, uint64_t seed,
                       std::byte* out) {
  Bits bits(seed);
  const WeightTypeInfo& info = InfoOf(type);
  if (info.block_values == 1) return FillFloats(type, count, deviation, bits, out);
  const Spread spread = SpreadOf(type);
  for (int64_t i = 0; i < count; i += info.block_values, out += info.block_bytes) {
    for (int at = 0; at < info.block_bytes; at += 8) {
      const uint64_t codes = bits.Next();
      std::memcpy(out + at, &codes, static_cast<size_t>(std::min(8, info.block_bytes - at)));
    }
    const float scale = deviation / spread.deviation * bits.Factor();
    PutF16(scale, out + spread.scale_at);
    if (spread.centre != 0.0f) {
      PutF16(spread.sign * spread.centre * scale, out + spread.minimum_at);
    }
  }
}

}  // namespace varve
