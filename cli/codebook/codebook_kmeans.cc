#include "cli/codebook/codebook_kmeans.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include <faiss/Clustering.h>
#include <faiss/VectorTransform.h>
#include <faiss/impl/ProductQuantizer.h>
#include <fmt/format.h>

#include "base/half.h"
#include "cli/codebook/nearest_centroids.h"

// Of OpenMP's run-time library, whose header comes with the compiler that has it.
extern "C" void omp_set_num_threads(int num_threads);

namespace varve::cli {
namespace {

// FAISS assigns points to centroids through an index; this one does nothing else.
class CentroidIndex final : public faiss::Index {
 public:
  explicit CentroidIndex(int dim) : faiss::Index(dim) {}

  void add(idx_t n, const float* x) override {
    nearest_.emplace(x, static_cast<int>(n), d);
    ntotal = n;
  }
  void reset() override {
    nearest_.reset();
    ntotal = 0;
  }
  void search(idx_t n, const float* x, idx_t k, float* distances, idx_t* labels,
              const faiss::SearchParameters* /*params*/) const override {
    if (k != 1 || !nearest_) throw std::logic_error("CentroidIndex: one neighbour, after add");
    nearest_->Find(x, static_cast<size_t>(n), labels);
    std::fill_n(distances, n, 0.0f);  // only statistics look at them
  }

 private:
  std::optional<NearestCentroids> nearest_;
};

faiss::ClusteringParameters Parameters(int iterations, uint64_t seed) {
  faiss::ClusteringParameters parameters;
  parameters.niter = iterations;
  parameters.seed = static_cast<int>(seed % 0x7FFFFFFF);
  parameters.min_points_per_centroid = 1;        // FAISS would print a warning below 39
  parameters.max_points_per_centroid = 1 << 24;  // the caller has thinned the rows
  return parameters;
}

}  // namespace

Result<std::vector<float>> KMeans(const std::vector<float>& points, int dim, int num_centroids,
                                  int iterations, uint64_t seed) {
  omp_set_num_threads(1);  // of the calling thread
  try {
    faiss::Clustering clustering(dim, num_centroids, Parameters(iterations, seed));
    CentroidIndex index(dim);
    clustering.train(static_cast<int64_t>(points.size()) / dim, points.data(), index);
    return std::move(clustering.centroids);
  } catch (const std::exception& error) {
    return Internal(fmt::format("k-means: {}", error.what()));
  }
}

Result<std::vector<uint16_t>> TrainRotation(RotationKind kind, const std::vector<float>& rows,
                                            int dim, int num_subspaces, int bits) {
  omp_set_num_threads(1);
  try {
    faiss::PCAMatrix axes(dim, dim);
    axes.balanced_bins = num_subspaces;
    axes.train(static_cast<int64_t>(rows.size()) / dim, rows.data());
    std::vector<uint16_t> rotation(axes.A.size());
    std::transform(axes.A.begin(), axes.A.end(), rotation.begin(), F32ToF16);
    if (kind == RotationKind::kBalanced) return rotation;
    CentroidIndex index(dim / num_subspaces);
    faiss::ProductQuantizer quantizer(static_cast<size_t>(dim), static_cast<size_t>(num_subspaces),
                                      static_cast<size_t>(bits));
    quantizer.assign_index = &index;
    quantizer.cp = Parameters(25, 1234);  // OPQ sets the iterations itself
    faiss::OPQMatrix opq(dim, num_subspaces);
    opq.pq = &quantizer;
    opq.niter = 20;
    opq.max_train_points = kRotationRows;
    // From there. FAISS would begin with a random rotation, which does not find back: half as much
    // error again as without any, measured on keys of the embedded model at 64x8.
    opq.A = axes.A;
    opq.is_trained = true;
    opq.train(static_cast<int64_t>(rows.size()) / dim, rows.data());
    std::transform(opq.A.begin(), opq.A.end(), rotation.begin(), F32ToF16);
    return rotation;
  } catch (const std::exception& error) {
    return Internal(fmt::format("OPQ: {}", error.what()));
  }
}

}  // namespace varve::cli
