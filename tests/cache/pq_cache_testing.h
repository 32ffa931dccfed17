// What the tests of pq rungs in caches share: a shape, a codebook with tables of many kinds for it,
// and attention over the rows that a cache gives back. Not part of the library.

#ifndef VARVE_TESTS_CACHE_PQ_CACHE_TESTING_H_
#define VARVE_TESTS_CACHE_PQ_CACHE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "rungs/pq/pq_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_testing.h"

namespace varve {

inline CacheShape PqShapeOfTests() {
  return ShapeOf({.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 32});
}

// pq4 and pq2 for both parts, pq3 for V alone, and others with rotations, wide codes and grains.
inline const std::vector<PqTableOptions>& PqTablesOfTests() {
  static const std::vector<PqTableOptions> tables = {
      {Part::kKey, {32, 8}, CodebookGrain::kHead, false},
      {Part::kKey, {32, 4}, CodebookGrain::kModel, false},
      {Part::kKey, {16, 5}, CodebookGrain::kLayer, true},
      {Part::kKey, {32, 10}, CodebookGrain::kModel, false},
      {Part::kKey, {16, 8}, CodebookGrain::kHead, true},
      {Part::kValue, {16, 8}, CodebookGrain::kHead, false},
      {Part::kValue, {16, 4}, CodebookGrain::kLayer, false},
      {Part::kValue, {16, 6}, CodebookGrain::kModel, true},
      {Part::kValue, {8, 10}, CodebookGrain::kModel, true},
      {Part::kValue, {16, 10}, CodebookGrain::kModel, false},
      {Part::kValue, {4, 7}, CodebookGrain::kHead, true},
  };
  return tables;
}

inline CacheOptions WithPqCodebook(const CacheShape& shape = PqShapeOfTests(), uint64_t seed = 1) {
  CacheOptions options;
  options.codebook = SharePqCodebook(shape, PqTablesOfTests(), seed);
  return options;
}

inline const RetentionWork& PqWork() {
  static const RetentionWork work(PqShapeOfTests(), 400);
  return work;
}

// Pages in any state whose rungs have that name in CacheStats.
inline uint64_t PagesIn(const Cache& cache, const std::string& rung) {
  uint64_t pages = 0;
  for (const RungBytes& bytes : cache.Stats().rungs) pages += bytes.rung == rung ? bytes.pages : 0;
  return pages;
}

// Expects that a query at the last position gives attention in double precision over the rows that
// the cache reads back, up to the rounding of queries and weights times the largest value.
inline void ExpectAttentionOfReadRows(Cache& cache, SequenceId id, double within = 1e-2) {
  const CacheShape& shape = cache.shape();
  const size_t heads = static_cast<size_t>(shape.num_kv_heads) * shape.group_size;
  const int64_t end = *cache.NextPosition(id);
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const std::vector<float> queries =
        RowRandom(31).Gaussians(heads * static_cast<size_t>(shape.key_dim));
    std::vector<float> output(heads * static_cast<size_t>(shape.value_dim));
    const AttendRequest request = {id, 1, queries.data(), 0, 0, output.data(), 0, 0, nullptr};
    ASSERT_OK(cache.Attend(layer, {&request, 1}, {}));
    for (size_t head = 0; head < heads; ++head) {
      const int kv_head = static_cast<int>(head) / shape.group_size;
      std::vector<float> keys(static_cast<size_t>(end) * shape.key_dim);
      std::vector<float> values(static_cast<size_t>(end) * shape.value_dim);
      const int64_t rows = *cache.ReadRows(id, layer, kv_head, Part::kKey, 0, end, keys.data());
      ASSERT_EQ(rows, *cache.ReadRows(id, layer, kv_head, Part::kValue, 0, end, values.data()));
      std::vector<double> scores;
      for (int64_t row = 0; row < rows; ++row) {
        double dot = 0;
        for (int d = 0; d < shape.key_dim; ++d) {
          dot += static_cast<double>(queries[head * shape.key_dim + d]) *
                 keys[static_cast<size_t>(row) * shape.key_dim + d];
        }
        scores.push_back(dot / std::sqrt(shape.key_dim));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (int d = 0; d < shape.value_dim; ++d) {
        double expected = 0, largest = 1;
        for (int64_t row = 0; row < rows; ++row) {
          const double value = values[static_cast<size_t>(row) * shape.value_dim + d];
          expected += scores[static_cast<size_t>(row)] / sum * value;
          largest = std::max(largest, std::abs(value));
        }
        ASSERT_NEAR(output[head * shape.value_dim + d], expected, within * largest)
            << "layer " << layer << " head " << head;
      }
    }
  }
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_PQ_CACHE_TESTING_H_
