#include "cli/fold/compressor_baselines.h"

#include <cmath>

#include "base/random.h"
#include "fold/compressor_numbers.h"

namespace varve {
namespace {

constexpr float kOpen = 256;

// The same layers, heads and factor, every layer as wide as a row; `fill(slot, linear)` fills it.
template <typename Fill>
Compressor Make(const Compressor& like, const Fill& fill) {
  Compressor made = like;
  made.num_slots = kMaxCompressorSlots;
  for (auto& layer : made.layers) {
    for (size_t part = 0; part < (like.has_image ? 4u : 2u); ++part) {
      for (int slot = 0; slot < kMaxCompressorSlots; ++slot) {
        CompressorLinear& linear = layer[part].slots[static_cast<size_t>(slot)];
        linear.rows = like.head_dim;
        linear.cols = slot == 0 ? like.factor * like.head_dim : like.head_dim;
        linear.weights.assign(static_cast<size_t>(linear.rows) * static_cast<size_t>(linear.cols) *
                                  CompressorDtypeBytes(like.dtype),
                              std::byte{0});
        linear.bias.assign(static_cast<size_t>(linear.rows), 0.0f);
        fill(slot, &linear);
      }
    }
  }
  return made;
}

}  // namespace

Compressor MeanPoolingLike(const Compressor& like) {
  return Make(like, [&like](int slot, CompressorLinear* linear) {
    const float weight = slot == 0 ? 1.0f / static_cast<float>(like.factor) : 1.0f;
    for (int row = 0; row < linear->rows; ++row) {
      for (int col = row; col < linear->cols; col += linear->rows) {
        StoreWeight(like.dtype, weight, *linear,
                    static_cast<size_t>(row) * static_cast<size_t>(linear->cols) +
                        static_cast<size_t>(col));
      }
    }
    if (slot == 1) return;
    for (float& bias : linear->bias) bias = slot == 0 ? kOpen : -kOpen;
  });
}

Compressor RandomLike(const Compressor& like, uint64_t seed) {
  SplitMix64 random(seed);
  return Make(like, [&](int, CompressorLinear* linear) {
    const auto next = [&] {
      const float unit = static_cast<float>(random.Next() >> 40) * 0x1p-23f - 1.0f;
      return unit / std::sqrt(static_cast<float>(linear->cols));
    };
    const size_t count = static_cast<size_t>(linear->rows) * static_cast<size_t>(linear->cols);
    for (size_t i = 0; i < count; ++i) StoreWeight(like.dtype, next(), *linear, i);
    for (float& bias : linear->bias) bias = RoundToDtype(like.dtype, next());
  });
}

}  // namespace varve
