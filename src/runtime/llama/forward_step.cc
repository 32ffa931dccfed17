#include "runtime/llama/forward_step.h"

#include <array>
#include <cmath>

#include "runtime/kernels/activations.h"

namespace varve {
namespace {

// Elementwise work on fewer floats than this is done before another thread has woken up.
constexpr size_t kMinParallelFloats = 32768;

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

void Grow(std::vector<float>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

ForwardStep::ForwardStep(const LlamaModel& model, Executor& executor, ProductPrecision precision,
                         ForwardClock& clock)
    : config_(model.config()),
      weights_(model.weights()),
      query_width_(config_.num_heads * config_.head_dim),
      kv_width_(config_.num_kv_heads * config_.head_dim),
      executor_(executor),
      clock_(clock),
      linear_(executor, precision),
      rope_(config_.rope),
      local_rope_(config_.local_rope.value_or(config_.rope)) {}

template <typename Task>
void ForwardStep::ForTokens(int first, size_t floats, const Task& task) {
  const size_t begin = static_cast<size_t>(first);
  const size_t end = static_cast<size_t>(num_tokens_);
  if ((end - begin) * floats < kMinParallelFloats) {
    for (size_t t = begin; t < end; ++t) task(t);
    return;
  }
  // Two words: std::function keeps them without allocating.
  executor_.ParallelFor(end - begin, [&task, begin](size_t i, int) { task(begin + i); });
}

Status ForwardStep::Prepare(const Cache& cache) {
  positions_.clear();
  for (const StepEntry& entry : entries_) {
    VARVE_ASSIGN_OR_RETURN(const int64_t next, cache.NextPosition(entry.sequence));
    for (int t = 0; t < entry.num_tokens; ++t) positions_.push_back(next + t);
  }
  num_tokens_ = static_cast<int>(positions_.size());
  const size_t count = positions_.size();
  Grow(residual_, count * config_.width);
  Grow(normed_, count * config_.width);
  Grow(queries_, count * query_width_);
  Grow(keys_, count * kv_width_);
  Grow(values_, count * kv_width_);
  Grow(attended_, count * query_width_);
  Grow(gate_, count * config_.ffn_width);
  Grow(up_, count * config_.ffn_width);
  return {};
}

void ForwardStep::Embed(std::span<const int32_t> tokens) {
  const WeightMatrix& table = weights_.token_embedding;
  const auto decode = ActiveWeightKernels().decode[static_cast<int>(table.type)];
  ForTokens(0, config_.width, [&](size_t t) {
    float* row = residual_.data() + t * config_.width;
    decode(table.row(tokens[t]), config_.width, row);
    if (config_.embedding_scale == 1.0f) return;
    for (int i = 0; i < config_.width; ++i) row[i] *= config_.embedding_scale;
  });
}

void ForwardStep::NormTokens(int first, const std::vector<float>& weight) {
  ForTokens(first, config_.width, [&](size_t t) {
    const size_t row = t * config_.width;
    RmsNorm(residual_.data() + row, weight.data(), config_.width, config_.norm_epsilon,
            normed_.data() + row);
  });
}

void ForwardStep::Project(const LlamaLayer& layer) {
  const std::array<LinearTask, 3> tasks = {{
      {.weights = &layer.query,
       .bias = DataOrNull(layer.query_bias),
       .input = normed_.data(),
       .output = queries_.data()},
      {.weights = &layer.key,
       .bias = DataOrNull(layer.key_bias),
       .input = normed_.data(),
       .output = keys_.data()},
      {.weights = &layer.value,
       .bias = DataOrNull(layer.value_bias),
       .input = normed_.data(),
       .output = values_.data()},
  }};
  linear_.Run(num_tokens_, tasks);
}

void ForwardStep::RotateToken(const LlamaLayer& layer, const RopeTable& table, size_t token) {
  float* query = queries_.data() + token * query_width_;
  float* key = keys_.data() + token * kv_width_;
  const int dim = config_.head_dim;
  if (config_.qk_norm) {
    for (int h = 0; h < config_.num_heads; ++h) {
      float* head = query + h * dim;
      RmsNorm(head, layer.query_norm.data(), dim, config_.norm_epsilon, head);
    }
    for (int h = 0; h < config_.num_kv_heads; ++h) {
      float* head = key + h * dim;
      RmsNorm(head, layer.key_norm.data(), dim, config_.norm_epsilon, head);
    }
  }
  table.Apply(token, query, config_.num_heads, dim);
  table.Apply(token, key, config_.num_kv_heads, dim);
}

Status ForwardStep::AttendLayer(Cache& cache, int index) {
  requests_.clear();
  size_t first = 0;
  for (const StepEntry& entry : entries_) {
    const RowsView key_rows{.data = keys_.data() + first * kv_width_,
                            .num_tokens = entry.num_tokens};
    const RowsView value_rows{.data = values_.data() + first * kv_width_,
                              .num_tokens = entry.num_tokens};
    VARVE_RETURN_IF_ERROR(cache.Append(index, entry.sequence, key_rows, value_rows));
    requests_.push_back({.sequence = entry.sequence,
                         .num_queries = entry.num_tokens,
                         .queries = queries_.data() + first * query_width_,
                         .output = attended_.data() + first * query_width_});
    first += entry.num_tokens;
  }
  return cache.Attend(index, requests_,
                      {.scale = config_.attention_scale,
                       .soft_cap = config_.attention_soft_cap,
                       .window = config_.LayerWindow(index)});
}

void ForwardStep::AddToResidual(const WeightMatrix& matrix, const std::vector<float>& bias,
                                const float* input, const std::vector<float>& post_norm) {
  const bool direct = post_norm.empty();
  const LinearTask out{.weights = &matrix,
                       .bias = DataOrNull(bias),
                       .input = input,
                       .output = direct ? residual_.data() : normed_.data(),
                       .add = direct};
  linear_.Run(num_tokens_, {&out, 1});
  clock_.Lap(&ForwardTimes::linear_us);
  if (direct) return;
  ForTokens(0, config_.width, [&](size_t t) {
    float* row = normed_.data() + t * config_.width;
    RmsNorm(row, post_norm.data(), config_.width, config_.norm_epsilon, row);
    AddInPlace(residual_.data() + t * config_.width, row, config_.width);
  });
  clock_.Lap(&ForwardTimes::other_us);
}

void ForwardStep::FeedForward(const LlamaLayer& layer) {
  NormTokens(0, layer.ffn_norm);
  clock_.Lap(&ForwardTimes::other_us);
  const std::array<LinearTask, 2> in = {{
      {.weights = &layer.ffn_gate, .input = normed_.data(), .output = gate_.data()},
      {.weights = &layer.ffn_up, .input = normed_.data(), .output = up_.data()},
  }};
  linear_.Run(num_tokens_, in);
  clock_.Lap(&ForwardTimes::linear_us);
  const bool silu = config_.activation == Activation::kSilu;
  ForTokens(0, config_.ffn_width, [&](size_t t) {
    const size_t row = t * config_.ffn_width;
    (silu ? SwiGlu : GeluTanhGlu)(gate_.data() + row, up_.data() + row, config_.ffn_width,
                                  gate_.data() + row);
  });
  clock_.Lap(&ForwardTimes::other_us);
  AddToResidual(layer.ffn_down, {}, gate_.data(), layer.ffn_post_norm);
}

Status ForwardStep::RunLayers(Cache& cache) {
  for (int index = 0; index < config_.num_layers; ++index) {
    const LlamaLayer& layer = weights_.layers[index];
    NormTokens(0, layer.attention_norm);
    clock_.Lap(&ForwardTimes::other_us);
    Project(layer);
    clock_.Lap(&ForwardTimes::linear_us);
    const RopeTable& table = HasLocalRope(index) ? local_rope_ : rope_;
    ForTokens(0, query_width_ + kv_width_, [&](size_t t) { RotateToken(layer, table, t); });
    clock_.Lap(&ForwardTimes::other_us);
    Status attention = AttendLayer(cache, index);
    clock_.Lap(&ForwardTimes::attention_us);
    if (!attention.ok()) return attention;
    AddToResidual(layer.attention_output, layer.output_bias, attended_.data(),
                  layer.attention_post_norm);
    FeedForward(layer);
  }
  return {};
}

void ForwardStep::WriteLogits(int first_token, float* logits) {
  NormTokens(first_token, weights_.output_norm);
  clock_.Lap(&ForwardTimes::other_us);
  const LinearTask out{.weights = &weights_.output,
                       .input = normed_.data() + static_cast<size_t>(first_token) * config_.width,
                       .output = logits};
  linear_.Run(num_tokens_ - first_token, {&out, 1});
  clock_.Lap(&ForwardTimes::linear_us);
  const float cap = config_.final_soft_cap;
  if (cap == 0.0f) return;
  ForTokens(first_token, config_.vocab_size, [&](size_t t) {
    float* row = logits + (t - first_token) * config_.vocab_size;
    for (int i = 0; i < config_.vocab_size; ++i) row[i] = cap * std::tanh(row[i] / cap);
  });
  clock_.Lap(&ForwardTimes::other_us);
}

Status ForwardStep::Run(Cache& cache, std::span<const StepEntry> entries,
                        std::span<const int32_t> tokens, int logits_from, float* logits) {
  entries_ = entries;
  VARVE_RETURN_IF_ERROR(Prepare(cache));
  rope_.Prepare(positions_);
  if (config_.local_rope.has_value()) local_rope_.Prepare(positions_);
  Embed(tokens);
  clock_.Lap(&ForwardTimes::other_us);
  Status begun = cache.BeginStep(entries_);
  clock_.Lap(&ForwardTimes::cache_us);
  if (!begun.ok()) return begun;  // a step that somebody else left open stays theirs
  Status run = RunLayers(cache);
  if (run.ok() && logits_from < num_tokens_) WriteLogits(logits_from, logits);
  // What weights that are gone have made must not stay in the cache.
  if (run.ok() && weights_.file != nullptr) run = weights_.file->CheckWhole();
  if (!run.ok()) {
    cache.AbortStep();
    clock_.Lap(&ForwardTimes::cache_us);
    return run;
  }
  Status ended = cache.EndStep();
  clock_.Lap(&ForwardTimes::cache_us);
  return ended;
}

size_t ForwardStep::scratch_bytes() const {
  size_t floats = 0;
  for (const std::vector<float>* buffer :
       {&residual_, &normed_, &queries_, &keys_, &values_, &attended_, &gate_, &up_}) {
    floats += buffer->capacity();
  }
  return floats * sizeof(float) + linear_.scratch_bytes();
}

}  // namespace varve
