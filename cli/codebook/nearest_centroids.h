// The nearest of some centroids for many points of few dimensions: nearly all of the time of
// k-means.
//
// A search through a matrix product has nothing to win at two dimensions: measured with 65536
// points, 256 centroids and 25 iterations on one core, k-means takes 2.0 s with that and 0.2 s with
// this. The same result, bit for bit, on every instruction set. Pure, any thread.

#ifndef VARVE_CLI_CODEBOOK_NEAREST_CENTROIDS_H_
#define VARVE_CLI_CODEBOOK_NEAREST_CENTROIDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace varve::cli {

class NearestCentroids {
 public:
  // centroids [count, dim]; count is a multiple of 16.
  NearestCentroids(const float* centroids, int count, int dim);

  // points [num_points, dim] -> labels [num_points], the lowest of equals. Distances are compared
  // as |c|^2 / 2 - x . c, rounded to f32.
  void Find(const float* points, size_t num_points, int64_t* labels) const;

 private:
  int count_;
  int dim_;
  std::vector<float> channels_;    // [dim, count]
  std::vector<float> half_norms_;  // [count]
};

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_NEAREST_CENTROIDS_H_
