#include "cli/codebook/nearest_centroids.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace varve::cli {
namespace nearest_centroids_test {

float Uniform(SplitMix64& random) {
  return static_cast<float>(random.Next() >> 40) * 0x1p-23f - 1.0f;
}

TEST(NearestCentroids, FindsWhatComparingAllFinds) {
  for (const int dim : {1, 2, 3, 8, 31, 128}) {
    for (const int count : {16, 48, 256, 4096}) {
      SplitMix64 random(static_cast<uint64_t>(dim * 10000 + count));
      std::vector<float> centroids(static_cast<size_t>(count) * dim);
      for (float& value : centroids) value = Uniform(random);
      const NearestCentroids nearest(centroids.data(), count, dim);
      for (const size_t num_points : {size_t{1}, size_t{3}, size_t{4}, size_t{9}}) {
        std::vector<float> points(num_points * dim);
        for (float& value : points) value = Uniform(random);
        std::vector<int64_t> labels(num_points);
        nearest.Find(points.data(), num_points, labels.data());
        for (size_t p = 0; p < num_points; ++p) {
          const auto distance = [&](size_t j) {
            double sum = 0;
            for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
              const double step = points[p * dim + d] - centroids[j * dim + d];
              sum += step * step;
            }
            return sum;
          };
          double least = distance(0);
          for (size_t j = 1; j < static_cast<size_t>(count); ++j) {
            least = std::min(least, distance(j));
          }
          ASSERT_GE(labels[p], 0);
          ASSERT_LT(labels[p], count);
          // Two that are equal but for rounding are both right.
          EXPECT_LE(distance(static_cast<size_t>(labels[p])), least + 1e-5 * dim);
        }
      }
    }
  }
}

TEST(NearestCentroids, OfEqualsTheLowestIsTaken) {
  std::vector<float> centroids(64 * 2, 0.5f);
  for (size_t j = 0; j < 5; ++j) centroids[2 * j] = -0.75f;
  const std::vector<float> points = {0.5f, 0.5f, 0.25f, 0.5f, -1.0f, 0.5f};
  std::vector<int64_t> labels(3);
  NearestCentroids(centroids.data(), 64, 2).Find(points.data(), 3, labels.data());
  EXPECT_EQ(labels, (std::vector<int64_t>{5, 5, 0}));
}

}  // namespace nearest_centroids_test
}  // namespace varve::cli
