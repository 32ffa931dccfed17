// k-means and rotations for the training of codebooks. Both use the calling thread alone and may
// run on many threads at once. The same result on every machine, up to the rounding of sums.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_KMEANS_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_KMEANS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace varve::cli {

// points [n, dim], finite, n >= num_centroids -> [num_centroids, dim]. num_centroids is a multiple
// of 16. Points may be equal. The same for the same seed.
std::vector<float> KMeans(const std::vector<float>& points, int dim, int num_centroids,
                          int iterations, uint64_t seed);

// What is done to rows before they are cut.
//   kBalanced  principal axes, the strong ones spread over the sub-spaces, so that every sub-space
//              has as much to tell: codes of one width then leave an error that is as large in
//              every direction
//   kOpq       from there on, alternating between rotation and centroids (OPQ): minutes per group
enum class RotationKind { kNone, kBalanced, kOpq };

// rows [n, dim] -> f16 bits [dim, dim], row major, for M sub-spaces of 2^bits centroids. At most
// kRotationRows rows are used. Deterministic. Not for kNone.
inline constexpr size_t kRotationRows = 16384;
std::vector<uint16_t> TrainRotation(RotationKind kind, const std::vector<float>& rows, int dim,
                                    int num_subspaces, int bits);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_KMEANS_H_
