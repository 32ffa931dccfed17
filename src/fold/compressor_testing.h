// Small compressors for tests: random, valid, the same for a seed.

#ifndef VARVE_FOLD_COMPRESSOR_TESTING_H_
#define VARVE_FOLD_COMPRESSOR_TESTING_H_

#include <cmath>
#include <cstdint>

#include "base/random.h"
#include "fold/compressor_numbers.h"
#include "varve/compressor.h"

namespace varve {

struct CompressorSpec {
  CompressorDtype dtype = CompressorDtype::kF16;
  int num_layers = 2;
  int num_heads = 0;
  int head_dim = 16;
  int factor = 2;
  int min_groups = 2;
  bool has_image = true;
  bool has_bias = true;
  int hidden = 0;  // width between the layers; 0: head_dim
  uint64_t seed = 1;
  int num_slots = kMaxCompressorSlots;
};

// Weights within 1 / sqrt(cols), as PyTorch begins with.
inline CompressorLinear RandomLinear(CompressorDtype dtype, int rows, int cols, bool has_bias,
                                     SplitMix64& random) {
  const auto next = [&] {
    const float unit = static_cast<float>(random.Next() >> 40) * 0x1p-23f - 1.0f;
    return unit / std::sqrt(static_cast<float>(cols));
  };
  CompressorLinear linear;
  linear.rows = rows;
  linear.cols = cols;
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  linear.weights.resize(count * CompressorDtypeBytes(dtype));
  for (size_t i = 0; i < count; ++i) StoreWeight(dtype, next(), linear, i);
  linear.bias.resize(has_bias ? static_cast<size_t>(rows) : 0);
  for (float& value : linear.bias) value = RoundToDtype(dtype, next());
  return linear;
}

inline Compressor RandomCompressor(const CompressorSpec& spec) {
  SplitMix64 random(spec.seed);
  const int hidden = spec.hidden == 0 ? spec.head_dim : spec.hidden;
  Compressor compressor;
  compressor.dtype = spec.dtype;
  compressor.num_heads = spec.num_heads;
  compressor.head_dim = spec.head_dim;
  compressor.factor = spec.factor;
  compressor.min_groups = spec.min_groups;
  compressor.num_slots = spec.num_slots;
  compressor.has_image = spec.has_image;
  compressor.layers.resize(static_cast<size_t>(spec.num_layers));
  for (auto& layer : compressor.layers) {
    for (size_t part = 0; part < (spec.has_image ? 4u : 2u); ++part) {
      auto& slots = layer[part].slots;
      for (int slot = 0; slot < spec.num_slots; ++slot) {
        const int rows = slot + 1 == spec.num_slots ? spec.head_dim : hidden;
        const int cols = slot == 0 ? spec.factor * spec.head_dim : hidden;
        slots[static_cast<size_t>(slot)] =
            RandomLinear(spec.dtype, rows, cols, spec.has_bias, random);
      }
    }
  }
  return compressor;
}

}  // namespace varve

#endif  // VARVE_FOLD_COMPRESSOR_TESTING_H_
