#include "cli/codebook/orthogonal_factors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace varve::cli {
namespace {

constexpr int kMaxSweeps = 60;        // ten are enough but for the oddest
constexpr double kConverged = 1e-14;  // cosine of two columns that count as orthogonal

double Dot(const double* a, const double* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void Rotate(double* a, double* b, size_t n, double c, double s) {
  for (size_t i = 0; i < n; ++i) {
    const double x = a[i];
    a[i] = c * x - s * b[i];
    b[i] = s * x + c * b[i];
  }
}

// Makes rows p and q of `columns` orthogonal and turns those of `v` along. False: they were.
bool MakeOrthogonal(double* columns, double* v, size_t n, size_t p, size_t q) {
  double* a = columns + p * n;
  double* b = columns + q * n;
  const double aa = Dot(a, a, n);
  const double bb = Dot(b, b, n);
  const double ab = Dot(a, b, n);
  if (ab == 0 || std::abs(ab) <= kConverged * std::sqrt(aa * bb)) return false;
  const double zeta = (bb - aa) / (2 * ab);
  const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
  const double c = 1 / std::hypot(1.0, t);
  Rotate(a, b, n, c, c * t);
  Rotate(v + p * n, v + q * n, n, c, c * t);
  return true;
}

// A unit vector at right angles to the first `count` rows: what is left of the axis that they cover
// least.
void Complete(double* rows, size_t count, size_t n) {
  double* row = rows + count * n;
  size_t least = 0;
  double least_covered = 2;
  for (size_t axis = 0; axis < n; ++axis) {
    double covered = 0;
    for (size_t i = 0; i < count; ++i) covered += rows[i * n + axis] * rows[i * n + axis];
    if (covered < least_covered) least_covered = covered, least = axis;
  }
  std::fill_n(row, n, 0.0);
  row[least] = 1;
  for (int pass = 0; pass < 2; ++pass) {  // the second takes off what rounding left
    for (size_t i = 0; i < count; ++i) {
      const double along = Dot(row, rows + i * n, n);
      for (size_t d = 0; d < n; ++d) row[d] -= along * rows[i * n + d];
    }
  }
  const double norm = std::sqrt(Dot(row, row, n));
  for (size_t d = 0; d < n; ++d) row[d] /= norm;
}

}  // namespace

OrthogonalFactors Factorize(const std::vector<double>& matrix, int n) {
  const auto size = static_cast<size_t>(n);
  std::vector<double> columns(size * size);  // row i is column i of M V
  std::vector<double> v(size * size);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < size; ++j) columns[j * size + i] = matrix[i * size + j];
    v[i * size + i] = 1;
  }
  bool turned = true;
  for (int sweep = 0; turned && sweep < kMaxSweeps; ++sweep) {
    turned = false;
    for (size_t p = 0; p + 1 < size; ++p) {
      for (size_t q = p + 1; q < size; ++q)
        turned |= MakeOrthogonal(columns.data(), v.data(), size, p, q);
    }
  }
  std::vector<double> norms(size);
  for (size_t i = 0; i < size; ++i) {
    const double* column = columns.data() + i * size;
    norms[i] = std::sqrt(Dot(column, column, size));
  }
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return norms[a] > norms[b]; });
  OrthogonalFactors factors{std::vector<double>(size * size), std::vector<double>(size),
                            std::vector<double>(size * size)};
  const double least = norms[order[0]] * 1e-13;
  for (size_t i = 0; i < size; ++i) {
    const size_t from = order[i];
    factors.s[i] = norms[from];
    std::copy_n(v.begin() + static_cast<ptrdiff_t>(from * size), size,
                factors.v.begin() + static_cast<ptrdiff_t>(i * size));
    if (norms[from] <= least) {
      Complete(factors.u.data(), i, size);
      continue;
    }
    for (size_t d = 0; d < size; ++d)
      factors.u[i * size + d] = columns[from * size + d] / norms[from];
  }
  return factors;
}

}  // namespace varve::cli
