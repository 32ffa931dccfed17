#include "cli/bench/synthetic_rows.h"

#include <algorithm>
#include <cmath>

#include "base/align.h"
#include "base/random.h"
#include "cli/bench/bench_workload.h"

namespace varve::cli {
namespace {

// Of the logarithm of a channel's scale.
constexpr float kScaleDeviation = 0.35f;

// Tokens of a task: rows of a head that lie apart by those of the others.
constexpr int kTaskTokens = 16;

// A number in [0, 1) from 24 bits.
float Unit(uint64_t bits) { return static_cast<float>(bits & 0xFFFFFF) * 0x1p-24f; }

// Gives every channel of every head its scale. table [kv_heads, rows, dim]
void ScaleChannels(std::vector<float>& table, size_t rows, size_t dim, uint64_t seed,
                   Executor& executor) {
  std::vector<float> scales(table.size() / rows);  // [kv_heads, dim]
  FillGaussian(scales, seed, executor);
  for (float& scale : scales) scale = std::exp(kScaleDeviation * scale);
  for (size_t i = 0; i < table.size(); ++i) table[i] *= scales[i / (rows * dim) * dim + i % dim];
}

}  // namespace

SyntheticRows::SyntheticRows(const CacheShape& shape, uint64_t seed, Executor& executor)
    : shape_(shape), seed_(seed), executor_(executor) {
  const auto heads = static_cast<size_t>(shape.num_kv_heads);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  keys_.resize(heads * kTableRows * key_dim);
  values_.resize(heads * kTableRows * value_dim);
  FillKeys(keys_, seed, executor);
  FillGaussian(values_, seed + 1, executor);
  ScaleChannels(keys_, kTableRows, key_dim, seed + 2, executor);
  ScaleChannels(values_, kTableRows, value_dim, seed + 3, executor);
}

void SyntheticRows::Fill(Part part, int layer, int64_t position, int num_tokens,
                         float* rows) const {
  const auto heads = static_cast<size_t>(shape_.num_kv_heads);
  const auto width = static_cast<size_t>(dim(part));
  const float* table = part == Part::kKey ? keys_.data() : values_.data();
  const size_t blocks = CeilDiv(static_cast<size_t>(num_tokens), kTaskTokens);
  const uint64_t stream =
      SplitMix64(seed_ ^ (static_cast<uint64_t>(layer) << 1 | (part == Part::kValue ? 1u : 0u))
                             << 32)
          .Next();
  executor_.ParallelFor(heads * blocks, [&](size_t task, int) {
    const size_t head = task / blocks;
    // Scales belong to a place in the table: another layer finds them at another head.
    const float* head_table =
        table + (head + static_cast<size_t>(layer)) % heads * kTableRows * width;
    const int begin = static_cast<int>(task % blocks) * kTaskTokens;
    const int end = std::min(begin + kTaskTokens, num_tokens);
    for (int t = begin; t < end; ++t) {
      SplitMix64 random(stream ^ (static_cast<uint64_t>(position + t) * heads + head));
      const uint64_t picks = random.Next();
      const uint64_t weights = random.Next();
      const size_t first = picks % kTableRows;
      const size_t second = (first + 1 + (picks >> 32) % (kTableRows - 1)) % kTableRows;
      // Both far from 0 and 1: no row looks like one of the table.
      const float a = 0.56f + 0.26f * Unit(weights);
      const float b = std::sqrt(1 - a * a);
      const float from_first = (weights >> 62 & 1) != 0 ? a : -a;
      const float from_second = (weights >> 63) != 0 ? b : -b;
      const float* x = head_table + first * width;
      const float* y = head_table + second * width;
      float* row = rows + (static_cast<size_t>(t) * heads + head) * width;
      for (size_t d = 0; d < width; ++d) row[d] = from_first * x[d] + from_second * y[d];
    }
  });
}

Status SyntheticRows::Extend(Cache& cache, SequenceId sequence, int64_t depth) const {
  VARVE_ASSIGN_OR_RETURN(int64_t position, cache.NextPosition(sequence));
  const auto heads = static_cast<size_t>(shape_.num_kv_heads);
  std::vector<float> keys;    // [tokens, kv_heads, key_dim]
  std::vector<float> values;  // [tokens, kv_heads, value_dim]
  for (int64_t done = position; done < depth;) {
    VARVE_ASSIGN_OR_RETURN(int most, cache.MaxStepTokens(sequence));
    constexpr int64_t kMaxTokens = 512;  // rows of one layer that are made at a time
    const auto tokens = static_cast<int>(std::min({int64_t{most}, kMaxTokens, depth - done}));
    keys.resize(static_cast<size_t>(tokens) * heads * static_cast<size_t>(shape_.key_dim));
    values.resize(static_cast<size_t>(tokens) * heads * static_cast<size_t>(shape_.value_dim));
    const StepEntry entry{sequence, tokens};
    VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      Fill(Part::kKey, layer, done, tokens, keys.data());
      Fill(Part::kValue, layer, done, tokens, values.data());
      VARVE_RETURN_IF_ERROR(cache.Append(layer, sequence, {keys.data(), tokens, 0, 0},
                                         {values.data(), tokens, 0, 0}));
    }
    VARVE_RETURN_IF_ERROR(cache.EndStep());
    done += tokens;
  }
  return Status();
}

}  // namespace varve::cli
