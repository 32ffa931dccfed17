#include "cli/codebook/codebook_rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/align.h"
#include "base/half.h"
#include "base/random.h"

namespace varve::cli {

Result<UnitRows> ReadUnitRows(const RowSource& rows, int group, size_t dim, size_t wanted,
                              uint64_t seed) {
  const size_t available = rows.NumRows(group);
  UnitRows unit;
  unit.values.resize(std::min(wanted, available) * dim);
  SplitMix64 random(seed);
  for (size_t i = 0; i < std::min(wanted, available); ++i) {
    size_t row = i;
    if (wanted < available) {
      const size_t begin = i * available / wanted;
      const size_t end = (i + 1) * available / wanted;
      row = begin + random.Next() % (end - begin);
    }
    float* to = unit.values.data() + unit.count * dim;
    rows.ReadRow(group, row, to);
    double squares = 0;
    for (size_t d = 0; d < dim; ++d) squares += static_cast<double>(to[d]) * to[d];
    if (!std::isfinite(squares)) {
      return InvalidArgument(
          fmt::format("{}: row {} has a value that is not finite", rows.GroupName(group), row));
    }
    // A row of zeros has norm 0 and no direction to learn.
    if (squares == 0) continue;
    const auto scale = static_cast<float>(1 / std::sqrt(squares));
    for (size_t d = 0; d < dim; ++d) to[d] *= scale;
    ++unit.count;
  }
  unit.values.resize(unit.count * dim);
  return unit;
}

UnitRows Thin(const UnitRows& rows, size_t count, size_t dim) {
  if (rows.count <= count) return rows;
  UnitRows thin;
  for (size_t i = 0; i < count; ++i) {
    const float* row = rows.values.data() + i * rows.count / count * dim;
    thin.values.insert(thin.values.end(), row, row + dim);
  }
  thin.count = count;
  return thin;
}

UnitRows Rotate(const UnitRows& rows, const uint16_t* rotation, size_t dim, Executor& executor) {
  std::vector<float> columns(dim * dim);  // [j][i]
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) columns[j * dim + i] = F16ToF32(rotation[i * dim + j]);
  }
  UnitRows rotated;
  rotated.count = rows.count;
  rotated.values.resize(rows.values.size());
  constexpr size_t kPiece = 1024;
  executor.ParallelFor(CeilDiv(rows.count, kPiece), [&](size_t piece, int) {
    const size_t end = std::min(rows.count, (piece + 1) * kPiece);
    for (size_t r = piece * kPiece; r < end; ++r) {
      float* to = &rotated.values[r * dim];
      for (size_t j = 0; j < dim; ++j) {
        const float x = rows.values[r * dim + j];
        for (size_t i = 0; i < dim; ++i) to[i] += x * columns[j * dim + i];
      }
    }
  });
  return rotated;
}

}  // namespace varve::cli
