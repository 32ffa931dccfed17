#include "bench_workload.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace varve::cli {
namespace {

constexpr float kScoreDeviation = 2.0f;
constexpr int kOutlierStride = 16;
constexpr float kOutlierGain = 4.0f;

void FillGaussian(std::vector<float>& out, uint64_t seed, Executor& executor) {
  constexpr size_t kChunk = 1 << 16;  // own generator each: independent of the thread count
  executor.ParallelFor((out.size() + kChunk - 1) / kChunk, [&](size_t chunk, int) {
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

}  // namespace

Workload::Workload(const WorkloadShape& shape, Executor& executor) : shape_(shape) {
  const size_t row = static_cast<size_t>(shape.kv_heads) * shape.dim;
  keys_.resize(shape.ctx * row);
  values_.resize(shape.ctx * row);
  queries_.resize(static_cast<size_t>(shape.heads) * shape.dim);
  FillGaussian(keys_, shape.seed, executor);
  FillGaussian(values_, shape.seed + 1, executor);
  FillGaussian(queries_, shape.seed + 2, executor);
  for (size_t i = 0; i < keys_.size(); i += kOutlierStride) keys_[i] *= kOutlierGain;
  // Variance of q.k / sqrt(dim) for unit rows is the mean square of K's channels.
  const float mean_square = 1.0f + (kOutlierGain * kOutlierGain - 1.0f) / kOutlierStride;
  for (float& q : queries_) q *= kScoreDeviation / std::sqrt(mean_square);

  const size_t dim = static_cast<size_t>(shape.dim);
  exact_ = Reference(executor, [&](int head, Part part, float* rows) {
    const std::vector<float>& from = part == Part::kKey ? keys_ : values_;
    for (int64_t t = 0; t < shape_.ctx; ++t) {
      std::copy_n(from.data() + t * row + head * dim, dim, rows + t * dim);
    }
  });
}

std::vector<double> Workload::Reference(Executor& executor,
                                        const std::function<void(int, Part, float*)>& rows) const {
  const size_t dim = static_cast<size_t>(shape_.dim);
  const size_t ctx = static_cast<size_t>(shape_.ctx);
  const size_t group = static_cast<size_t>(shape_.heads / shape_.kv_heads);
  std::vector<double> output(shape_.heads * dim, 0.0);
  executor.ParallelFor(static_cast<size_t>(shape_.kv_heads), [&](size_t head, int) {
    std::vector<float> buffer(ctx * dim);
    std::vector<double> weights(group * ctx);
    rows(static_cast<int>(head), Part::kKey, buffer.data());
    std::vector<double> sums(group, 0.0);
    for (size_t g = 0; g < group; ++g) {
      const float* query = queries_.data() + (head * group + g) * dim;
      double highest = -1e300;
      for (size_t t = 0; t < ctx; ++t) {
        double dot = 0;
        for (size_t d = 0; d < dim; ++d) dot += static_cast<double>(query[d]) * buffer[t * dim + d];
        weights[g * ctx + t] = dot / std::sqrt(static_cast<double>(dim));
        highest = std::max(highest, weights[g * ctx + t]);
      }
      for (size_t t = 0; t < ctx; ++t) {
        weights[g * ctx + t] = std::exp(weights[g * ctx + t] - highest);
        sums[g] += weights[g * ctx + t];
      }
    }
    rows(static_cast<int>(head), Part::kValue, buffer.data());
    for (size_t g = 0; g < group; ++g) {
      double* out = output.data() + (head * group + g) * dim;
      for (size_t t = 0; t < ctx; ++t) {
        const double weight = weights[g * ctx + t] / sums[g];
        for (size_t d = 0; d < dim; ++d) out[d] += weight * buffer[t * dim + d];
      }
    }
  });
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

// Feeds ctx tokens to every layer in the largest steps that the cache takes. Rows of token t start
// at t * token_floats; 0 repeats the same rows.
Status Feed(Cache& cache, SequenceId sequence, int64_t ctx, const float* keys, const float* values,
            size_t token_floats) {
  for (int64_t done = 0; done < ctx;) {
    Result<int> most = cache.MaxStepTokens(sequence);
    if (!most.ok()) return most.status();
    const int tokens = static_cast<int>(std::min<int64_t>(*most, ctx - done));
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
                                         Executor& executor) {
  CacheOptions options;
  options.plan = plan;
  options.executor = &executor;
  return Cache::Create(shape, std::move(options));
}

}  // namespace

Result<FilledCache> FillCache(const Workload& workload, const Plan& plan, int layers, int batch,
                              Executor& executor) {
  const WorkloadShape& shape = workload.shape();
  Result<std::unique_ptr<Cache>> cache =
      MakeCache({layers, shape.kv_heads, shape.heads / shape.kv_heads, shape.dim, shape.dim, 0},
                plan, executor);
  if (!cache.ok()) return cache.status();
  FilledCache filled;
  filled.cache = std::move(*cache);
  filled.layers = layers;
  for (int b = 0; b < batch; ++b) {
    Result<SequenceId> sequence = filled.cache->CreateSequence();
    if (!sequence.ok()) return sequence.status();
    filled.sequences.push_back(*sequence);
    VARVE_RETURN_IF_ERROR(Feed(*filled.cache, *sequence, shape.ctx, workload.keys().data(),
                               workload.values().data(),
                               static_cast<size_t>(shape.kv_heads) * shape.dim));
  }
  filled.layer_bytes = filled.cache->Stats().bytes_used / layers;
  return filled;
}

Result<uint64_t> EstimateLayerBytes(const WorkloadShape& shape, const Plan& plan) {
  std::unique_ptr<Executor> executor = MakeThreadPool(1);
  Result<std::unique_ptr<Cache>> cache =
      MakeCache({1, 1, 1, shape.dim, shape.dim, 0}, plan, *executor);
  if (!cache.ok()) return cache.status();
  Result<SequenceId> sequence = (*cache)->CreateSequence();
  if (!sequence.ok()) return sequence.status();
  const std::vector<float> zeros(static_cast<size_t>((*cache)->shape().page_tokens) * shape.dim,
                                 0.0f);
  VARVE_RETURN_IF_ERROR(Feed(**cache, *sequence, shape.ctx, zeros.data(), zeros.data(), 0));
  return (*cache)->Stats().bytes_used * static_cast<uint64_t>(shape.kv_heads);
}

}  // namespace varve::cli
