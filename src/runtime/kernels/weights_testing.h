// Random matrices of every weight type, and products with them in double precision: what the tests
// of weights and linear layers share. Not part of the library.

#ifndef VARVE_RUNTIME_KERNELS_WEIGHTS_TESTING_H_
#define VARVE_RUNTIME_KERNELS_WEIGHTS_TESTING_H_

#include <cmath>
#include <vector>

#include "kernels/kernel_testing.h"
#include "runtime/kernels/weights.h"
#include "runtime/kernels/weights_random.h"

namespace varve {

struct ExactDot {
  double value;
  double magnitude;  // sum of |weight * input|: what rounding errors are relative to
};

inline ExactDot DotOf(const std::vector<float>& weights, const float* input) {
  ExactDot dot = {};
  for (size_t i = 0; i < weights.size(); ++i) {
    const double product = static_cast<double>(weights[i]) * input[i];
    dot.value += product;
    dot.magnitude += std::abs(product);
  }
  return dot;
}

class RandomMatrix {
 public:
  RandomMatrix(WeightType type, int64_t rows, int64_t cols, uint64_t seed) {
    view_ = {type, rows, cols, nullptr};
    bytes_.resize(view_.bytes());
    view_.data = bytes_.data();
    FillRandomWeights(type, rows * cols, 0.5f, seed, bytes_.data());
  }

  const WeightMatrix& view() const { return view_; }

  std::vector<float> Row(int64_t row) const {
    std::vector<float> values(view_.cols);
    AvailableWeightKernels()[0]->decode[static_cast<int>(view_.type)](view_.row(row), view_.cols,
                                                                      values.data());
    return values;
  }

  ExactDot Dot(int64_t row, const float* input) const { return DotOf(Row(row), input); }

 private:
  WeightMatrix view_;
  std::vector<std::byte> bytes_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_WEIGHTS_TESTING_H_
