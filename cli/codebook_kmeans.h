// What of FAISS the training of codebooks uses: k-means and OPQ rotations. The only place that
// includes it. FAISS throws; what it throws comes back as a Status. Both give FAISS the calling
// thread alone and may run on many threads at once.

#ifndef VARVE_CLI_CODEBOOK_KMEANS_H_
#define VARVE_CLI_CODEBOOK_KMEANS_H_

#include <cstdint>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

// points [n, dim], finite, n >= num_centroids -> [num_centroids, dim]. num_centroids is a multiple
// of 16. Points may be equal. The same for the same seed.
Result<std::vector<float>> KMeans(const std::vector<float>& points, int dim, int num_centroids,
                                  int iterations, uint64_t seed);

// rows [n, dim] -> f16 bits [dim, dim], row major: the rotation that suits M sub-spaces of 2^bits
// centroids (OPQ). At most kRotationRows rows are used. Deterministic.
inline constexpr size_t kRotationRows = 16384;
Result<std::vector<uint16_t>> TrainRotation(const std::vector<float>& rows, int dim,
                                            int num_subspaces, int bits);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_KMEANS_H_
