// The synthetic problem of `varve bench attention`: rows and queries from a seed, caches filled
// with them, and the exact answer in double precision.

#ifndef VARVE_CLI_BENCH_BENCH_WORKLOAD_H_
#define VARVE_CLI_BENCH_BENCH_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "varve/cache.h"

namespace varve::cli {

struct WorkloadShape {
  int heads = 32;
  int kv_heads = 8;
  int dim = 128;
  int64_t ctx = 4096;
  uint64_t seed = 1;
};

// Near-Gaussian values of unit variance; the same for any number of threads.
void FillGaussian(std::vector<float>& out, uint64_t seed, Executor& executor);
// The same with one channel in 16 four times as large: keys.
void FillKeys(std::vector<float>& out, uint64_t seed, Executor& executor);

// K is Gaussian with one channel in 16 four times as large, as real keys have outlier channels; V
// is Gaussian. Queries are scaled so that scores have a standard deviation of about 2: attention is
// neither flat nor a single peak.
class Workload {
 public:
  Workload(const WorkloadShape& shape, Executor& executor);

  const WorkloadShape& shape() const { return shape_; }
  const std::vector<float>& keys() const { return keys_; }        // [ctx, kv_heads, dim]
  const std::vector<float>& values() const { return values_; }    // [ctx, kv_heads, dim]
  const std::vector<float>& queries() const { return queries_; }  // [heads, dim]
  // Attention of the queries over the original rows, in double. [heads, dim]
  const std::vector<double>& exact() const { return exact_; }

  // Attention over other rows with the same queries. `read` writes the rows of a KV head, [ctx,
  // dim] f32; it is called on this thread only, as a cache wants it. Its first error is returned.
  using RowReader = std::function<Status(int kv_head, Part part, float* rows)>;
  Result<std::vector<double>> Reference(Executor& executor, const RowReader& read) const;

 private:
  WorkloadShape shape_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> queries_;
  std::vector<double> exact_;
};

struct Error {
  double max = 0;  // both relative to the RMS of `exact`
  double rms = 0;
};
Error CompareOutputs(const std::vector<float>& output, const std::vector<double>& exact);

// `batch` sequences, each with the workload's rows in every one of `layers` layers.
struct FilledCache {
  std::unique_ptr<Cache> cache;
  std::vector<SequenceId> sequences;
  int layers = 0;
  uint64_t layer_bytes = 0;  // payload of one layer, all sequences: what attention reads
  uint64_t layer_held = 0;   // slots of those pages, page records and tables of one layer
  StageTimes filling;        // of all rows, where stages are timed
};
Result<FilledCache> FillCache(const Workload& workload, const Plan& plan, int layers, int batch,
                              Executor& executor, bool time_stages = false);

// Payload of one layer once filled: measured on a stand-in with one KV head. Fails where FillCache
// would refuse the shape or the plan.
Result<uint64_t> EstimateLayerBytes(const WorkloadShape& shape, const Plan& plan);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_WORKLOAD_H_
