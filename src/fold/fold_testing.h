// What a compressor's network gives, in double precision and as plainly as it can be said: what
// tests compare FoldNetwork and the cache with.

#ifndef VARVE_FOLD_FOLD_TESTING_H_
#define VARVE_FOLD_FOLD_TESTING_H_

#include <vector>

#include "fold/compressor_testing.h"

namespace varve {

// inputs [num_rows, factor * head_dim] to [num_rows, head_dim].
inline std::vector<double> FoldReference(const CompressorMlp& mlp, CompressorDtype dtype,
                                         const float* inputs, int num_rows) {
  std::vector<double> values(inputs, inputs + static_cast<ptrdiff_t>(num_rows) * mlp.slots[0].cols);
  for (size_t slot = 0; slot < mlp.slots.size() && mlp.slots[slot].rows > 0; ++slot) {
    const CompressorLinear& linear = mlp.slots[slot];
    const bool last = slot + 1 == mlp.slots.size() || mlp.slots[slot + 1].rows == 0;
    const auto rows = static_cast<size_t>(linear.rows);
    const auto cols = static_cast<size_t>(linear.cols);
    std::vector<double> out(static_cast<size_t>(num_rows) * rows);
    for (size_t token = 0; token < static_cast<size_t>(num_rows); ++token) {
      for (size_t row = 0; row < rows; ++row) {
        double sum = linear.bias.empty() ? 0 : linear.bias[row];
        for (size_t col = 0; col < cols; ++col)
          sum += values[token * cols + col] * LoadWeight(dtype, linear, row * cols + col);
        out[token * rows + row] = !last && sum < 0 ? 0 : sum;
      }
    }
    values = std::move(out);
  }
  return values;
}

}  // namespace varve

#endif  // VARVE_FOLD_FOLD_TESTING_H_
