#include "rungs/rotation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "rungs/rotation_signs.h"

namespace varve {
namespace {

constexpr std::array<float, kMaxDim> MakeSigns() {
  std::array<float, kMaxDim> signs{};
  for (size_t d = 0; d < signs.size(); ++d)
    signs[d] = kRotationSigns[d / 32] >> (d % 32) & 1 ? -1.0f : 1.0f;
  return signs;
}

constexpr std::array<float, kMaxDim> kSigns = MakeSigns();

void ApplySigns(float* rows, int num_rows, int dim) {
  for (int row = 0; row < num_rows; ++row) {
    for (int d = 0; d < dim; ++d) rows[static_cast<size_t>(row) * dim + d] *= kSigns[d];
  }
}

}  // namespace

int RotationBlock(int dim) { return RotationBlockOf(dim); }

void RotateRows(const Kernels& kernels, float* rows, int num_rows, int dim) {
  ApplySigns(rows, num_rows, dim);
  kernels.hadamard(rows, num_rows, dim, RotationBlock(dim));
}

void UnrotateRows(const Kernels& kernels, float* rows, int num_rows, int dim) {
  kernels.hadamard(rows, num_rows, dim, RotationBlock(dim));
  ApplySigns(rows, num_rows, dim);
}

void AddUnrotatedRows(const Kernels& kernels, const float* rows, int num_rows, int dim,
                      float* output) {
  float row[kMaxDim];
  for (int i = 0; i < num_rows; ++i) {
    const size_t at = static_cast<size_t>(i) * dim;
    std::copy_n(rows + at, dim, row);
    UnrotateRows(kernels, row, 1, dim);
    kernels.add_scaled(output + at, row, static_cast<size_t>(dim), 1.0f);
  }
}

uint64_t ReplaceBeyondF16(float* values, size_t count) {
  constexpr float kLimit = 65504.0f;
  // Almost always there is nothing to do, and this loop has no branch in it.
  uint32_t beyond = 0;
  for (size_t i = 0; i < count; ++i) beyond += std::abs(values[i]) <= kLimit ? 0 : 1;
  uint64_t replaced = 0;
  for (size_t i = 0; beyond > 0 && i < count; ++i) {
    if (std::abs(values[i]) <= kLimit) continue;
    values[i] = std::isnan(values[i]) ? 0.0f : std::copysign(kLimit, values[i]);
    ++replaced;
  }
  return replaced;
}

}  // namespace varve
