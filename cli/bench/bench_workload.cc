#include "cli/bench/bench_workload.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/align.h"
#include "cli/bench/synthetic_codebook.h"
#include "pages/page_pool.h"

namespace varve::cli {
namespace {

constexpr float kScoreDeviation = 2.0f;
constexpr int kOutlierStride = 16;
constexpr float kOutlierGain = 4.0f;

// One query head in double. keys, values [ctx, dim]; adds to output [dim], which holds zeros.
void AttendExactly(const float* query, const float* keys, const float* values, size_t ctx,
                   size_t dim, double* output) {
  std::vector<double> weights(ctx);
  double highest = -HUGE_VAL;
  for (size_t t = 0; t < ctx; ++t) {
    double dot = 0;
    for (size_t d = 0; d < dim; ++d) dot += static_cast<double>(query[d]) * keys[t * dim + d];
    weights[t] = dot / std::sqrt(static_cast<double>(dim));
    highest = std::max(highest, weights[t]);
  }
  double sum = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - highest);
    sum += weight;
  }
  for (size_t t = 0; t < ctx; ++t) {
    const double weight = weights[t] / sum;
    for (size_t d = 0; d < dim; ++d) output[d] += weight * values[t * dim + d];
  }
}

}  // namespace

void FillGaussian(std::vector<float>& out, uint64_t seed, Executor& executor) {
  constexpr size_t kChunk = 1 << 16;  // own generator each: independent of the thread count
  executor.ParallelFor(CeilDiv(out.size(), kChunk), [&](size_t chunk, int) {
    std::mt19937_64 random(seed * 1000003 + chunk);
    // Sum of four 16-bit uniforms, centred and scaled: near Gaussian, and fast enough for
    // gigabytes.
    const float norm = 1.0f / (65536.0f * std::sqrt(4.0f / 12.0f));
    const size_t end = std::min(out.size(), (chunk + 1) * kChunk);
    for (size_t i = chunk * kChunk; i < end; ++i) {
      const uint64_t bits = random();
      const int sum = static_cast<int>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                       (bits >> 32 & 0xFFFF) + (bits >> 48));
      out[i] = static_cast<float>(sum - 131070) * norm;
    }
  });
}

void FillKeys(std::vector<float>& out, uint64_t seed, Executor& executor) {
  FillGaussian(out, seed, executor);
  for (size_t i = 0; i < out.size(); i += kOutlierStride) out[i] *= kOutlierGain;
}

Workload::Workload(const WorkloadShape& shape, Executor& executor) : shape_(shape) {
  const size_t row = static_cast<size_t>(shape.kv_heads) * shape.dim;
  keys_.resize(shape.ctx * row);
  values_.resize(shape.ctx * row);
  queries_.resize(static_cast<size_t>(shape.heads) * shape.dim);
  FillKeys(keys_, shape.seed, executor);
  FillGaussian(values_, shape.seed + 1, executor);
  FillGaussian(queries_, shape.seed + 2, executor);
  // Variance of q.k / sqrt(dim) for unit rows is the mean square of K's channels.
  const float mean_square = 1.0f + (kOutlierGain * kOutlierGain - 1.0f) / kOutlierStride;
  for (float& q : queries_) q *= kScoreDeviation / std::sqrt(mean_square);

  const size_t dim = static_cast<size_t>(shape.dim);
  exact_ = *Reference(executor, [&](int head, Part part, float* rows) {
    const std::vector<float>& from = part == Part::kKey ? keys_ : values_;
    for (int64_t t = 0; t < shape_.ctx; ++t) {
      std::copy_n(from.data() + t * row + head * dim, dim, rows + t * dim);
    }
    return Status();
  });
}

Result<std::vector<double>> Workload::Reference(Executor& executor, const RowReader& read) const {
  const size_t dim = static_cast<size_t>(shape_.dim);
  const size_t ctx = static_cast<size_t>(shape_.ctx);
  const size_t kv_heads = static_cast<size_t>(shape_.kv_heads);
  const size_t group = static_cast<size_t>(shape_.heads / shape_.kv_heads);
  std::vector<double> output(shape_.heads * dim, 0.0);
  // As many KV heads at a time as there are threads: their rows are read here, one after another,
  // and their query heads are computed in parallel.
  const size_t most = std::min(kv_heads, static_cast<size_t>(executor.num_threads()));
  std::vector<float> keys(most * ctx * dim);    // [most, ctx, dim]
  std::vector<float> values(most * ctx * dim);  // [most, ctx, dim]
  for (size_t first = 0; first < kv_heads; first += most) {
    const size_t count = std::min(most, kv_heads - first);
    for (size_t i = 0; i < count; ++i) {
      const int head = static_cast<int>(first + i);
      VARVE_RETURN_IF_ERROR(read(head, Part::kKey, keys.data() + i * ctx * dim));
      VARVE_RETURN_IF_ERROR(read(head, Part::kValue, values.data() + i * ctx * dim));
    }
    executor.ParallelFor(count * group, [&](size_t task, int) {
      const size_t rows = task / group * ctx * dim;
      const size_t query = (first * group + task) * dim;
      AttendExactly(queries_.data() + query, keys.data() + rows, values.data() + rows, ctx, dim,
                    output.data() + query);
    });
  }
  return output;
}

Error CompareOutputs(const std::vector<float>& output, const std::vector<double>& exact) {
  double square = 0;
  double error_square = 0;
  double error_max = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(output[i] - exact[i]);
    square += exact[i] * exact[i];
    error_square += error * error;
    error_max = std::max(error_max, std::isnan(error) ? HUGE_VAL : error);
  }
  const double rms = std::sqrt(square / static_cast<double>(exact.size()));
  return {error_max / rms, std::sqrt(error_square / static_cast<double>(exact.size())) / rms};
}

namespace {

// Feeds ctx tokens to every layer, a page at a time. Rows of token t start at t * token_floats; 0
// repeats the same page of rows.
Status Feed(Cache& cache, SequenceId sequence, int64_t ctx, const float* keys, const float* values,
            size_t token_floats) {
  for (int64_t done = 0; done < ctx;) {
    VARVE_ASSIGN_OR_RETURN(int most, cache.MaxStepTokens(sequence));
    const int tokens =
        static_cast<int>(std::min<int64_t>({most, cache.shape().page_tokens, ctx - done}));
    const StepEntry entry{sequence, tokens};
    VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < cache.shape().num_layers; ++layer) {
      VARVE_RETURN_IF_ERROR(cache.Append(layer, sequence,
                                         {keys + done * token_floats, tokens, 0, 0},
                                         {values + done * token_floats, tokens, 0, 0}));
    }
    VARVE_RETURN_IF_ERROR(cache.EndStep());
    done += tokens;
  }
  return Status();
}

Result<std::unique_ptr<Cache>> MakeCache(const CacheShape& shape, const Plan& plan,
                                         std::shared_ptr<const Codebook> codebook,
                                         Executor& executor, bool time_stages) {
  CacheOptions options;
  options.codebook = std::move(codebook);
  options.plan = plan;
  options.executor = &executor;
  options.time_stages = time_stages;
  return Cache::Create(shape, std::move(options));
}

// Pages of one rung and state are of one size.
uint64_t BytesInSlots(const CacheStats& stats) {
  uint64_t bytes = 0;
  for (const RungBytes& rung : stats.rungs)
    bytes += rung.pages * SlotBytes(rung.bytes / rung.pages);
  return bytes;
}

}  // namespace

Result<FilledCache> FillCache(const Workload& workload, const Plan& plan, int layers, int batch,
                              Executor& executor, bool time_stages) {
  const WorkloadShape& shape = workload.shape();
  const CacheShape cache_shape = {layers,    shape.kv_heads, shape.heads / shape.kv_heads,
                                  shape.dim, shape.dim,      0};
  VARVE_ASSIGN_OR_RETURN(
      std::shared_ptr<const Codebook> codebook,
      SyntheticCodebook(plan, cache_shape, workload.keys(), workload.values(), executor));
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache,
                         MakeCache(cache_shape, plan, std::move(codebook), executor, time_stages));
  FilledCache filled;
  filled.cache = std::move(cache);
  filled.layers = layers;
  for (int b = 0; b < batch; ++b) {
    VARVE_ASSIGN_OR_RETURN(SequenceId sequence, filled.cache->CreateSequence());
    filled.sequences.push_back(sequence);
    VARVE_RETURN_IF_ERROR(Feed(*filled.cache, sequence, shape.ctx, workload.keys().data(),
                               workload.values().data(),
                               static_cast<size_t>(shape.kv_heads) * shape.dim));
  }
  const CacheReport stats = filled.cache->Report();
  filled.filling = stats.stages;
  filled.layer_bytes = stats.bytes_used / layers;
  // Not bytes_held: the pool keeps slots of pages that were open a while ago.
  filled.layer_held = (BytesInSlots(stats) + stats.bytes_tables) / layers;
  return filled;
}

Result<uint64_t> EstimateLayerBytes(const WorkloadShape& shape, const Plan& plan) {
  std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const CacheShape cache_shape = {1, 1, shape.heads / shape.kv_heads, shape.dim, shape.dim, 0};
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const Codebook> codebook,
                         GaussianCodebook(plan, cache_shape, *executor));
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache,
                         MakeCache(cache_shape, plan, std::move(codebook), *executor, false));
  VARVE_ASSIGN_OR_RETURN(SequenceId sequence, cache->CreateSequence());
  const std::vector<float> zeros(static_cast<size_t>(cache->shape().page_tokens) * shape.dim, 0.0f);
  VARVE_RETURN_IF_ERROR(Feed(*cache, sequence, shape.ctx, zeros.data(), zeros.data(), 0));
  return cache->Stats().bytes_used * static_cast<uint64_t>(shape.kv_heads);
}

}  // namespace varve::cli
