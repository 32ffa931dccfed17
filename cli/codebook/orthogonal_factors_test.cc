#include "cli/codebook/orthogonal_factors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "base/random.h"

namespace varve::cli {
namespace orthogonal_factors_test {

using Matrix = std::vector<double>;

Matrix RandomMatrix(size_t n, uint64_t seed) {
  SplitMix64 random(seed);
  Matrix matrix(n * n);
  for (double& x : matrix) x = static_cast<double>(static_cast<int64_t>(random.Next())) * 0x1p-62;
  return matrix;
}

void ExpectOrthogonal(const Matrix& rows, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double dot = 0;
      for (size_t d = 0; d < n; ++d) dot += rows[i * n + d] * rows[j * n + d];
      ASSERT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-10) << n << ": " << i << ", " << j;
    }
  }
}

void ExpectFactors(const Matrix& matrix, size_t n) {
  const OrthogonalFactors factors = Factorize(matrix, static_cast<int>(n));
  ExpectOrthogonal(factors.u, n);
  ExpectOrthogonal(factors.v, n);
  for (size_t i = 1; i < n; ++i) ASSERT_GE(factors.s[i - 1], factors.s[i]);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k)
        sum += factors.s[k] * factors.u[k * n + i] * factors.v[k * n + j];
      ASSERT_NEAR(sum, matrix[i * n + j], 1e-10) << n << ": " << i << ", " << j;
    }
  }
}

TEST(OrthogonalFactors, MultiplyToTheMatrix) {
  for (const size_t n : {1, 2, 3, 16, 31, 64}) ExpectFactors(RandomMatrix(n, n), n);
}

TEST(OrthogonalFactors, AreWholeWhereTheMatrixIsNot) {
  ExpectFactors(Matrix(size_t{8} * 8), 8);  // nothing but zeros
  Matrix matrix(size_t{16} * 16);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j)  // of rank 2
      matrix[i * 16 + j] =
          std::sin(1.0 + static_cast<double>(i)) * static_cast<double>(j) + (i == j % 2 ? 1 : 0);
  }
  ExpectFactors(matrix, 16);
}

TEST(OrthogonalFactors, OfAKnownMatrixAreKnown) {
  const OrthogonalFactors factors = Factorize({3, 0, 4, 5}, 2);
  EXPECT_NEAR(factors.s[0], std::sqrt(45.0), 1e-12);
  EXPECT_NEAR(factors.s[1], std::sqrt(5.0), 1e-12);
}

}  // namespace orthogonal_factors_test
}  // namespace varve::cli
