// The singular value decomposition of a square matrix, by one-sided Jacobi rotations: small, exact
// to the last digits, and fast enough at the sizes of a head (a second at 512). It gives the
// principal axes of a covariance and the rotation closest to a matrix. Pure, any thread.

#ifndef VARVE_CLI_CODEBOOK_ORTHOGONAL_FACTORS_H_
#define VARVE_CLI_CODEBOOK_ORTHOGONAL_FACTORS_H_

#include <vector>

namespace varve::cli {

// M = U diag(s) V^T
struct OrthogonalFactors {
  std::vector<double> u;  // [n, n]: row i is the i-th left vector, the i-th column of U
  std::vector<double> s;  // [n], falling
  std::vector<double> v;  // [n, n]: row i is the i-th right vector
};

// matrix [n, n], row major, finite. Vectors of singular values that are 0 complete the others to an
// orthogonal matrix.
OrthogonalFactors Factorize(const std::vector<double>& matrix, int n);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_ORTHOGONAL_FACTORS_H_
