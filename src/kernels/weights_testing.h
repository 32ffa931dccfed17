// Random matrices of every weight type, and products with them in double precision: what the tests
// of weights and linear layers share. Not part of the library.

#ifndef VARVE_KERNELS_WEIGHTS_TESTING_H_
#define VARVE_KERNELS_WEIGHTS_TESTING_H_

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"
#include "kernels/weights.h"

namespace varve {

struct ExactDot {
  double value;
  double magnitude;  // sum of |weight * input|: what rounding errors are relative to
};

// Any bytes are codes; only the f16 and f32 fields are chosen, near 1 / 50.
class RandomMatrix {
 public:
  RandomMatrix(WeightType type, int64_t rows, int64_t cols, uint64_t seed) {
    view_ = {type, rows, cols, nullptr};
    bytes_.resize(view_.bytes());
    view_.data = bytes_.data();
    TestRandom random(seed);
    const WeightTypeInfo& info = InfoOf(type);
    for (size_t at = 0; at < bytes_.size(); at += info.block_bytes) {
      std::byte* block = bytes_.data() + at;
      for (int i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(random.Bits());
      FillFloats(type, random, block);
    }
  }

  const WeightMatrix& view() const { return view_; }

  std::vector<float> Row(int64_t row) const {
    std::vector<float> values(view_.cols);
    AvailableWeightKernels()[0]->decode[static_cast<int>(view_.type)](view_.row(row), view_.cols,
                                                                      values.data());
    return values;
  }

  ExactDot Dot(int64_t row, const float* input) const {
    const std::vector<float> weights = Row(row);
    ExactDot dot = {};
    for (int64_t i = 0; i < view_.cols; ++i) {
      const double product = static_cast<double>(weights[i]) * input[i];
      dot.value += product;
      dot.magnitude += std::abs(product);
    }
    return dot;
  }

 private:
  static void FillFloats(WeightType type, TestRandom& random, std::byte* block) {
    const auto put_f16 = [&](int offset) {
      const uint16_t bits = F32ToF16(0.02f * random.Gaussian());
      std::memcpy(block + offset, &bits, 2);
    };
    switch (type) {
      case WeightType::kF32: {
        const float value = random.Gaussian();
        std::memcpy(block, &value, 4);
        break;
      }
      case WeightType::kBF16: {
        const uint16_t bits = F32ToBF16(random.Gaussian());
        std::memcpy(block, &bits, 2);
        break;
      }
      case WeightType::kQ4_1:
      case WeightType::kQ5_1:
      case WeightType::kQ4K:
      case WeightType::kQ5K:
        put_f16(2);
        put_f16(0);
        break;
      case WeightType::kQ6K:
        put_f16(208);
        break;
      default:
        put_f16(0);
    }
  }

  WeightMatrix view_;
  std::vector<std::byte> bytes_;
};

}  // namespace varve

#endif  // VARVE_KERNELS_WEIGHTS_TESTING_H_
