#include "rungs/block/rotation.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "kernels/kernels.h"

namespace varve {
namespace {

constexpr std::array<float, kMaxDim> MakeSigns() {
  std::array<float, kMaxDim> signs{};
  for (size_t d = 0; d < signs.size(); ++d) signs[d] = SplitMix64(d).Next() >> 63 ? -1.0f : 1.0f;
  return signs;
}

constexpr std::array<float, kMaxDim> kSigns = MakeSigns();

void ApplySigns(float* rows, int num_rows, int dim) {
  for (int row = 0; row < num_rows; ++row) {
    for (int d = 0; d < dim; ++d) rows[static_cast<size_t>(row) * dim + d] *= kSigns[d];
  }
}

}  // namespace

int RotationBlock(int dim) { return dim & -dim; }

void RotateRows(const Kernels& kernels, float* rows, int num_rows, int dim) {
  ApplySigns(rows, num_rows, dim);
  kernels.hadamard(rows, num_rows, dim, RotationBlock(dim));
}

void UnrotateRows(const Kernels& kernels, float* rows, int num_rows, int dim) {
  kernels.hadamard(rows, num_rows, dim, RotationBlock(dim));
  ApplySigns(rows, num_rows, dim);
}

}  // namespace varve
