// SyntheticRows: keys and values that fill a cache to a depth without a model, for `bench decode`.
//
// A row is a function of (seed, part, layer, position, KV head) alone: the same for every plan and
// for any number of threads, however the depth was reached. No row comes twice, so that packing
// (pack=) finds no more in them than in real rows: values are near Gaussian, channels of a head
// differ in scale as real ones do, and one key channel in 16 is four times as large.
//
// Each row is the sum of two rows of a small table with weights of its own, whose squares add up to
// 1: as good as new random numbers, at a multiplication and an addition a value.

#ifndef VARVE_CLI_BENCH_SYNTHETIC_ROWS_H_
#define VARVE_CLI_BENCH_SYNTHETIC_ROWS_H_

#include <cstdint>
#include <vector>

#include "varve/cache.h"

namespace varve::cli {

class SyntheticRows {
 public:
  // The executor must outlive this.
  SyntheticRows(const CacheShape& shape, uint64_t seed, Executor& executor);

  // Appends rows until the sequence holds `depth` tokens.
  Status Extend(Cache& cache, SequenceId sequence, int64_t depth) const;

  // Rows of positions [position, position + num_tokens) in one layer: [num_tokens, kv_heads, dim].
  void Fill(Part part, int layer, int64_t position, int num_tokens, float* rows) const;

 private:
  static constexpr size_t kTableRows = 509;

  int dim(Part part) const { return part == Part::kKey ? shape_.key_dim : shape_.value_dim; }

  CacheShape shape_;
  uint64_t seed_;
  Executor& executor_;
  std::vector<float> keys_;    // [kv_heads, kTableRows, key_dim]
  std::vector<float> values_;  // [kv_heads, kTableRows, value_dim]
};

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_SYNTHETIC_ROWS_H_
