// cuda/layers/products.h without cuBLASLt: a loop on the CPU, with sums in f32.

#include <cstdint>
#include <vector>

#include "base/half.h"
#include "cuda/layers/products.h"

namespace varve::cuda {

struct Products::State {};

Products::Products() = default;
Products::~Products() = default;

DeviceStatus Products::Create(AlgorithmChoice) { return {}; }

DeviceStatus Products::Multiply(const Product& product, cudaStream_t) {
  const auto widen = product.type == HalfType::kBF16 ? BF16ToF32 : F16ToF32;
  const auto inputs = static_cast<size_t>(product.inputs);
  std::vector<float> x(static_cast<size_t>(product.rows) * inputs);
  for (size_t i = 0; i < x.size(); ++i) x[i] = widen(static_cast<const uint16_t*>(product.x)[i]);
  std::vector<float> weights(inputs);
  for (size_t output = 0; output < static_cast<size_t>(product.outputs); ++output) {
    const uint16_t* stored = static_cast<const uint16_t*>(product.weights) + output * inputs;
    for (size_t i = 0; i < inputs; ++i) weights[i] = widen(stored[i]);
    for (size_t row = 0; row < static_cast<size_t>(product.rows); ++row) {
      float sums[8] = {};
      for (size_t i = 0; i < inputs; ++i) sums[i % 8] += x[row * inputs + i] * weights[i];
      float sum = 0.0f;
      for (const float part : sums) sum += part;
      float& out = product.out[row * static_cast<size_t>(product.outputs) + output];
      out = product.add ? out + sum : sum;
    }
  }
  return {};
}

size_t Products::workspace_bytes() const { return 0; }

}  // namespace varve::cuda
