#include "cli/codebook/codebook_kmeans.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "base/half.h"
#include "base/random.h"
#include "cli/codebook/nearest_centroids.h"
#include "cli/codebook/orthogonal_factors.h"

namespace varve::cli {
namespace {

constexpr int kOpqRounds = 20;
constexpr int kFirstPasses = 40;  // of k-means in the first round; later ones go on from there
constexpr int kLaterPasses = 4;
constexpr uint64_t kOpqSeed = 1234;

// Different points to begin with, as far as there are any.
std::vector<float> RandomPoints(std::span<const float> points, int dim, int count, uint64_t seed) {
  const size_t num_points = points.size() / static_cast<size_t>(dim);
  std::vector<size_t> order(num_points);
  std::iota(order.begin(), order.end(), size_t{0});
  SplitMix64 random(seed);
  std::vector<float> chosen;
  chosen.reserve(static_cast<size_t>(count) * static_cast<size_t>(dim));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(order[i], order[i + random.Next() % (num_points - i)]);
    const float* from = points.data() + order[i] * static_cast<size_t>(dim);
    chosen.insert(chosen.end(), from, from + dim);
  }
  return chosen;
}

// A centroid that no point is nearest to takes half of those of the largest one: both move apart a
// little, and the next pass divides the points.
void FillEmpty(int dim, std::vector<size_t>* counts, float* centroids) {
  constexpr float kApart = 1.0f / 1024;
  for (size_t empty = 0; empty < counts->size(); ++empty) {
    if ((*counts)[empty] > 0) continue;
    const auto largest =
        static_cast<size_t>(std::max_element(counts->begin(), counts->end()) - counts->begin());
    float* from = centroids + largest * static_cast<size_t>(dim);
    float* to = centroids + empty * static_cast<size_t>(dim);
    for (int d = 0; d < dim; ++d) {
      const float sign = d % 2 == 0 ? kApart : -kApart;
      to[d] = from[d] * (1 + sign);
      from[d] *= 1 - sign;
    }
    (*counts)[empty] = (*counts)[largest] / 2;
    (*counts)[largest] -= (*counts)[empty];
  }
}

// Lloyd's algorithm from the centroids that are there.
void Refine(std::span<const float> points, int dim, int iterations, std::vector<float>* centroids) {
  const auto width = static_cast<size_t>(dim);
  const size_t num_points = points.size() / width;
  const size_t num_centroids = centroids->size() / width;
  std::vector<int64_t> labels(num_points);
  std::vector<double> sums(centroids->size());  // f32 would lose small steps in large groups
  std::vector<size_t> counts(num_centroids);
  for (int pass = 0; pass < iterations; ++pass) {
    NearestCentroids(centroids->data(), static_cast<int>(num_centroids), dim)
        .Find(points.data(), num_points, labels.data());
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(counts.begin(), counts.end(), size_t{0});
    for (size_t i = 0; i < num_points; ++i) {
      const auto label = static_cast<size_t>(labels[i]);
      ++counts[label];
      for (size_t d = 0; d < width; ++d)
        sums[label * width + d] += static_cast<double>(points[i * width + d]);
    }
    for (size_t j = 0; j < num_centroids; ++j) {
      if (counts[j] == 0) continue;
      for (size_t d = 0; d < width; ++d) {
        (*centroids)[j * width + d] =
            static_cast<float>(sums[j * width + d] / static_cast<double>(counts[j]));
      }
    }
    FillEmpty(dim, &counts, centroids->data());
  }
}

// Rows less their mean.
std::vector<float> Centred(const std::vector<float>& rows, size_t dim) {
  const size_t num_rows = rows.size() / dim;
  std::vector<double> mean(dim);
  for (size_t i = 0; i < rows.size(); ++i) mean[i % dim] += static_cast<double>(rows[i]);
  std::vector<float> centred(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    centred[i] = static_cast<float>(static_cast<double>(rows[i]) -
                                    mean[i % dim] / static_cast<double>(num_rows));
  }
  return centred;
}

// a^T b: a and b [n, dim] -> [dim, dim]
std::vector<double> CrossProduct(const std::vector<float>& a, const std::vector<float>& b,
                                 size_t dim) {
  std::vector<double> product(dim * dim);
  for (size_t row = 0; row < a.size(); row += dim) {
    for (size_t i = 0; i < dim; ++i) {
      const auto x = static_cast<double>(a[row + i]);
      for (size_t j = 0; j < dim; ++j) product[i * dim + j] += x * static_cast<double>(b[row + j]);
    }
  }
  return product;
}

// Principal axes as rows, the strongest first to the sub-space that has the least variance so far
// and still room.
std::vector<float> BalancedAxes(const std::vector<float>& centred, int dim, int num_subspaces) {
  const auto width = static_cast<size_t>(dim);
  const size_t room = width / static_cast<size_t>(num_subspaces);
  const OrthogonalFactors factors = Factorize(CrossProduct(centred, centred, width), dim);
  std::vector<double> variance(static_cast<size_t>(num_subspaces));
  std::vector<size_t> filled(static_cast<size_t>(num_subspaces));
  std::vector<float> axes(width * width);
  for (size_t i = 0; i < width; ++i) {
    size_t best = variance.size();
    for (size_t m = 0; m < variance.size(); ++m) {
      if (filled[m] == room) continue;
      if (best == variance.size() || variance[m] < variance[best]) best = m;
    }
    variance[best] += factors.s[i];
    const size_t row = best * room + filled[best]++;
    std::transform(factors.v.begin() + static_cast<ptrdiff_t>(i * width),
                   factors.v.begin() + static_cast<ptrdiff_t>((i + 1) * width),
                   axes.begin() + static_cast<ptrdiff_t>(row * width),
                   [](double x) { return static_cast<float>(x); });
  }
  return axes;
}

// rows [n, dim] times the transpose of a rotation [dim, dim].
std::vector<float> Turned(const std::vector<float>& rows, const std::vector<float>& rotation,
                          size_t dim) {
  std::vector<float> columns(rotation.size());  // the transpose, so that sums run along rows
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) columns[j * dim + i] = rotation[i * dim + j];
  }
  std::vector<float> turned(rows.size());
  for (size_t row = 0; row < rows.size(); row += dim) {
    for (size_t j = 0; j < dim; ++j) {
      const float x = rows[row + j];
      for (size_t i = 0; i < dim; ++i) turned[row + i] += x * columns[j * dim + i];
    }
  }
  return turned;
}

// Optimized product quantization: what centroids make of the turned rows, then the rotation that
// brings the rows closest to that, in turn. It begins at the balanced axes: from a random rotation
// it does not find back, with half as much error again as without any, measured on keys of the
// embedded model at 64x8.
void RefineRotation(const std::vector<float>& centred, int dim, int num_subspaces, int bits,
                    std::vector<float>* rotation) {
  const auto width = static_cast<size_t>(dim);
  const size_t sub = width / static_cast<size_t>(num_subspaces);
  std::vector<std::vector<float>> centroids(static_cast<size_t>(num_subspaces));
  std::vector<float> points(centred.size() / static_cast<size_t>(num_subspaces));
  std::vector<int64_t> labels(centred.size() / width);
  for (int round = 0; round < kOpqRounds; ++round) {
    const std::vector<float> turned = Turned(centred, *rotation, width);
    std::vector<float> coded(turned.size());
    for (size_t m = 0; m < centroids.size(); ++m) {
      for (size_t i = 0; i < labels.size(); ++i)
        std::copy_n(&turned[i * width + m * sub], sub, &points[i * sub]);
      if (round == 0)
        centroids[m] = RandomPoints(points, static_cast<int>(sub), 1 << bits, kOpqSeed + m);
      Refine(points, static_cast<int>(sub), round == 0 ? kFirstPasses : kLaterPasses,
             &centroids[m]);
      NearestCentroids(centroids[m].data(), 1 << bits, static_cast<int>(sub))
          .Find(points.data(), labels.size(), labels.data());
      for (size_t i = 0; i < labels.size(); ++i) {
        std::copy_n(&centroids[m][static_cast<size_t>(labels[i]) * sub], sub,
                    &coded[i * width + m * sub]);
      }
    }
    // The orthogonal A that makes |X A^T - C| least: U V^T of C^T X (Procrustes).
    const OrthogonalFactors factors = Factorize(CrossProduct(coded, centred, width), dim);
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) {
        double sum = 0;
        for (size_t k = 0; k < width; ++k)
          sum += factors.u[k * width + i] * factors.v[k * width + j];
        (*rotation)[i * width + j] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace

std::vector<float> KMeans(const std::vector<float>& points, int dim, int num_centroids,
                          int iterations, uint64_t seed) {
  std::vector<float> centroids = RandomPoints(points, dim, num_centroids, seed);
  Refine(points, dim, iterations, &centroids);
  return centroids;
}

std::vector<uint16_t> TrainRotation(RotationKind kind, const std::vector<float>& rows, int dim,
                                    int num_subspaces, int bits) {
  const std::vector<float> centred = Centred(rows, static_cast<size_t>(dim));
  std::vector<float> rotation = BalancedAxes(centred, dim, num_subspaces);
  if (kind == RotationKind::kOpq) RefineRotation(centred, dim, num_subspaces, bits, &rotation);
  std::vector<uint16_t> narrow(rotation.size());
  std::transform(rotation.begin(), rotation.end(), narrow.begin(), F32ToF16);
  return narrow;
}

}  // namespace varve::cli
