// The specification of the rotation loops in plain C++ (the table "scalar"), and the choice of
// table.

#include "kernels/rotated_rows.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/active_table.h"
#include "kernels/rotated_rows_tables.h"

namespace varve {
namespace {

float Widen(bool bf16, uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu, sign = (bits & 0x8000u) << 16;
  return std::bit_cast<float>(sign |
                              (bf16 ? magnitude << 16 : (magnitude << 13) + kRotationF16Bias));
}

// The nearest float of 16 bits, halves away from 0. Turned numbers are at most 1.5 times as large
// as those of a row, so that no exponent runs into the sign.
uint16_t Narrow(bool bf16, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (bf16) return static_cast<uint16_t>(sign | (magnitude + 0x8000u) >> 16);
  const uint32_t clamped = std::max(magnitude, kRotationF16Bias) - kRotationF16Bias;
  return static_cast<uint16_t>(sign | (clamped + 0x1000u) >> 13);
}

struct Turn {
  float cos, sin;
};

Turn TurnOf(uint32_t phase) {
  const uint32_t quarter = (phase + (1u << 29)) >> 30;
  const float x =
      static_cast<float>(static_cast<int32_t>(phase - (quarter << 30))) * kRotationToRadians;
  const float x2 = x * x;
  const float sin = x + x * x2 * (kRotationSin[0] + x2 * kRotationSin[1]);
  const float cos = 1.0f + x2 * (kRotationCos[0] + x2 * kRotationCos[1]);
  switch (quarter) {
    case 1:
      return {-sin, cos};
    case 2:
      return {-cos, -sin};
    case 3:
      return {sin, -cos};
    default:
      return {cos, sin};
  }
}

const RotationKernels kScalar = {
    .name = "scalar", .rotate_row = RotateRowScalar, .fill_tile = FillTileScalar};

}  // namespace

void RotateRowScalar(const RotateRowArgs& args) {
  const int pairs = args.dim / 2;
  const bool halves = args.order == RotationOrder::kHalves;
  for (int i = 0; i < pairs; ++i) {
    const Turn turn = TurnOf(args.turns[i] * args.distance);
    const int first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
    const float a = Widen(args.bf16, args.row[first]), b = Widen(args.bf16, args.row[second]);
    args.out[first] = Narrow(args.bf16, a * turn.cos - b * turn.sin);
    args.out[second] = Narrow(args.bf16, a * turn.sin + b * turn.cos);
  }
  for (int i = 0; i < args.dim; ++i) {
    const int miss = args.misses != nullptr ? args.misses[i] - kRotationMissBias : 0;
    args.out[i] = OrderedBits(static_cast<uint16_t>(OrderedBits(args.out[i]) + miss));
  }
}

void FillTileScalar(const uint16_t* const* rows, int dim, uint16_t* out) {
  for (int channel = 0; channel < dim; ++channel) {
    for (int row = 0; row < 16; ++row) out[16 * channel + row] = rows[row][channel];
  }
}

std::span<const RotationKernels* const> AvailableRotationKernels() {
  static const std::vector<const RotationKernels*> tables = [] {
    std::vector<const RotationKernels*> all = {&kScalar};
    for (const RotationKernels* table : SimdRotationKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

const RotationKernels& ActiveRotationKernels() { return ActiveTable(AvailableRotationKernels()); }

}  // namespace varve
