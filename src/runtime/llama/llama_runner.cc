#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/activations.h"
#include "runtime/llama/llama_model.h"
#include "runtime/llama/llama_weights.h"
#include "runtime/llama/rope.h"

namespace varve {
namespace {

using Clock = std::chrono::steady_clock;

// Elementwise work on fewer floats than this is done before another thread has woken up.
constexpr size_t kLeastParallelFloats = 32768;

Status CheckTokens(std::span<const int32_t> tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return InvalidArgument(
          fmt::format("token {}: id {} not in [0, {})", i, tokens[i], vocab_size));
    }
  }
  return {};
}

Status CheckShape(const CacheShape& model, const CacheShape& cache) {
  const auto check = [](const char* field, int expected, int given) {
    if (expected == given) return Status();
    return InvalidArgument(fmt::format("cache: {} {}, the model's is {}", field, given, expected));
  };
  VARVE_RETURN_IF_ERROR(check("num_layers", model.num_layers, cache.num_layers));
  VARVE_RETURN_IF_ERROR(check("num_kv_heads", model.num_kv_heads, cache.num_kv_heads));
  VARVE_RETURN_IF_ERROR(check("group_size", model.group_size, cache.group_size));
  VARVE_RETURN_IF_ERROR(check("key_dim", model.key_dim, cache.key_dim));
  return check("value_dim", model.value_dim, cache.value_dim);
}

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

void Grow(std::vector<float>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

// One step: the tokens of all entries behind one another, T in all.
struct LlamaRunner::Impl {
  Impl(const LlamaModel& llama, Executor& threads, ProductPrecision precision)
      : config(llama.config()),
        weights(llama.weights()),
        shape(llama.cache_shape()),
        query_width(config.num_heads * config.head_dim),
        kv_width(config.num_kv_heads * config.head_dim),
        executor(threads),
        linear(threads, precision),
        rope(config.rope) {}

  const LlamaConfig& config;
  const LlamaWeights& weights;
  const CacheShape shape;
  const int query_width;
  const int kv_width;
  Executor& executor;
  LinearLayers linear;
  RopeTable rope;

  // --- the step ---
  int num_tokens = 0;
  std::vector<StepEntry> entries;
  std::vector<int64_t> positions;       // [T]
  std::vector<AttendRequest> requests;  // [entries]
  std::vector<float> residual;          // [T, width]
  std::vector<float> normed;            // [T, width]
  std::vector<float> queries;           // [T, num_heads, head_dim]
  std::vector<float> keys;              // [T, num_kv_heads, head_dim]
  std::vector<float> values;            // [T, num_kv_heads, head_dim]
  std::vector<float> attended;          // [T, num_heads, head_dim]
  std::vector<float> gate;              // [T, ffn_width]
  std::vector<float> up;                // [T, ffn_width]
  std::vector<int32_t> decode_tokens;   // [T] of Decode

  ForwardTimes times;
  Clock::time_point lap_start;

  // The time since the last lap belongs to this part.
  void Lap(double ForwardTimes::*part) {
    const Clock::time_point now = Clock::now();
    times.*part += std::chrono::duration<double, std::micro>(now - lap_start).count();
    lap_start = now;
  }

  // task(token) for the step's tokens from `first` on; `floats` are what one token reads.
  template <typename Task>
  void ForTokens(int first, size_t floats, const Task& task) {
    const size_t begin = static_cast<size_t>(first);
    const size_t end = static_cast<size_t>(num_tokens);
    if ((end - begin) * floats < kLeastParallelFloats) {
      for (size_t t = begin; t < end; ++t) task(t);
      return;
    }
    const auto shifted = [&task, begin](size_t i, int) { task(begin + i); };
    executor.ParallelFor(end - begin, shifted);
  }

  Status CheckCall(const Cache& cache, std::span<const int32_t> tokens, bool logits_missing) const {
    if (tokens.empty()) return InvalidArgument("tokens: none given, at least 1 needed");
    if (logits_missing) return InvalidArgument("logits: null, but asked for");
    VARVE_RETURN_IF_ERROR(CheckShape(shape, cache.shape()));
    return CheckTokens(tokens, config.vocab_size);
  }

  // Positions of the entries' tokens, and room for all of them.
  Status Prepare(const Cache& cache);
  void Embed(std::span<const int32_t> tokens);
  // residual to normed, tokens from `first` on.
  void NormTokens(int first, const std::vector<float>& weight);
  void Project(const LlamaLayer& layer);
  void RotateToken(const LlamaLayer& layer, size_t token);
  Status AttendLayer(Cache& cache, int index);
  void FeedForward(const LlamaLayer& layer);
  void WriteLogits(int first_token, float* logits);
  Status RunLayers(Cache& cache);
  // Tokens [logits_from, T) get logits.
  Status Step(Cache& cache, std::span<const int32_t> tokens, int logits_from, float* logits);
};

Status LlamaRunner::Impl::Prepare(const Cache& cache) {
  positions.clear();
  for (const StepEntry& entry : entries) {
    const Result<int64_t> next = cache.NextPosition(entry.sequence);
    if (!next.ok()) return next.status();
    for (int t = 0; t < entry.num_tokens; ++t) positions.push_back(*next + t);
  }
  num_tokens = static_cast<int>(positions.size());
  const size_t count = positions.size();
  Grow(residual, count * config.width);
  Grow(normed, count * config.width);
  Grow(queries, count * query_width);
  Grow(keys, count * kv_width);
  Grow(values, count * kv_width);
  Grow(attended, count * query_width);
  Grow(gate, count * config.ffn_width);
  Grow(up, count * config.ffn_width);
  return {};
}

void LlamaRunner::Impl::Embed(std::span<const int32_t> tokens) {
  const WeightMatrix& table = weights.token_embedding;
  const auto decode = ActiveWeightKernels().decode[static_cast<int>(table.type)];
  ForTokens(0, config.width, [&](size_t t) {
    decode(table.row(tokens[t]), config.width, residual.data() + t * config.width);
  });
}

void LlamaRunner::Impl::NormTokens(int first, const std::vector<float>& weight) {
  ForTokens(first, config.width, [&](size_t t) {
    const size_t row = t * config.width;
    RmsNorm(residual.data() + row, weight.data(), config.width, config.norm_epsilon,
            normed.data() + row);
  });
}

void LlamaRunner::Impl::Project(const LlamaLayer& layer) {
  const std::array<LinearTask, 3> tasks = {{
      {.weights = &layer.query,
       .bias = DataOrNull(layer.query_bias),
       .input = normed.data(),
       .output = queries.data()},
      {.weights = &layer.key,
       .bias = DataOrNull(layer.key_bias),
       .input = normed.data(),
       .output = keys.data()},
      {.weights = &layer.value,
       .bias = DataOrNull(layer.value_bias),
       .input = normed.data(),
       .output = values.data()},
  }};
  linear.Run(num_tokens, tasks);
}

void LlamaRunner::Impl::RotateToken(const LlamaLayer& layer, size_t token) {
  float* query = queries.data() + token * query_width;
  float* key = keys.data() + token * kv_width;
  const int dim = config.head_dim;
  if (config.qk_norm) {
    for (int h = 0; h < config.num_heads; ++h) {
      float* head = query + h * dim;
      RmsNorm(head, layer.query_norm.data(), dim, config.norm_epsilon, head);
    }
    for (int h = 0; h < config.num_kv_heads; ++h) {
      float* head = key + h * dim;
      RmsNorm(head, layer.key_norm.data(), dim, config.norm_epsilon, head);
    }
  }
  rope.Apply(token, query, config.num_heads, dim);
  rope.Apply(token, key, config.num_kv_heads, dim);
}

Status LlamaRunner::Impl::AttendLayer(Cache& cache, int index) {
  requests.clear();
  size_t first = 0;
  for (const StepEntry& entry : entries) {
    const RowsView key_rows{.data = keys.data() + first * kv_width, .num_tokens = entry.num_tokens};
    const RowsView value_rows{.data = values.data() + first * kv_width,
                              .num_tokens = entry.num_tokens};
    VARVE_RETURN_IF_ERROR(cache.Append(index, entry.sequence, key_rows, value_rows));
    requests.push_back({.sequence = entry.sequence,
                        .num_queries = entry.num_tokens,
                        .queries = queries.data() + first * query_width,
                        .output = attended.data() + first * query_width});
    first += entry.num_tokens;
  }
  return cache.Attend(index, requests, {.scale = config.attention_scale, .window = config.window});
}

void LlamaRunner::Impl::FeedForward(const LlamaLayer& layer) {
  NormTokens(0, layer.ffn_norm);
  Lap(&ForwardTimes::other_us);
  const std::array<LinearTask, 2> in = {{
      {.weights = &layer.ffn_gate, .input = normed.data(), .output = gate.data()},
      {.weights = &layer.ffn_up, .input = normed.data(), .output = up.data()},
  }};
  linear.Run(num_tokens, in);
  Lap(&ForwardTimes::linear_us);
  ForTokens(0, config.ffn_width, [&](size_t t) {
    const size_t row = t * config.ffn_width;
    SwiGlu(gate.data() + row, up.data() + row, config.ffn_width, gate.data() + row);
  });
  Lap(&ForwardTimes::other_us);
  const LinearTask out{
      .weights = &layer.ffn_down, .input = gate.data(), .output = residual.data(), .add = true};
  linear.Run(num_tokens, {&out, 1});
  Lap(&ForwardTimes::linear_us);
}

Status LlamaRunner::Impl::RunLayers(Cache& cache) {
  for (int index = 0; index < config.num_layers; ++index) {
    const LlamaLayer& layer = weights.layers[index];
    NormTokens(0, layer.attention_norm);
    Lap(&ForwardTimes::other_us);
    Project(layer);
    Lap(&ForwardTimes::linear_us);
    ForTokens(0, query_width + kv_width, [&](size_t t) { RotateToken(layer, t); });
    Lap(&ForwardTimes::other_us);
    const Status attention = AttendLayer(cache, index);
    Lap(&ForwardTimes::attention_us);
    if (!attention.ok()) return attention;
    const LinearTask out{.weights = &layer.attention_output,
                         .bias = DataOrNull(layer.output_bias),
                         .input = attended.data(),
                         .output = residual.data(),
                         .add = true};
    linear.Run(num_tokens, {&out, 1});
    Lap(&ForwardTimes::linear_us);
    FeedForward(layer);
  }
  return {};
}

void LlamaRunner::Impl::WriteLogits(int first_token, float* logits) {
  NormTokens(first_token, weights.output_norm);
  Lap(&ForwardTimes::other_us);
  const LinearTask out{.weights = &weights.output,
                       .input = normed.data() + static_cast<size_t>(first_token) * config.width,
                       .output = logits};
  linear.Run(num_tokens - first_token, {&out, 1});
  Lap(&ForwardTimes::linear_us);
}

Status LlamaRunner::Impl::Step(Cache& cache, std::span<const int32_t> tokens, int logits_from,
                               float* logits) {
  VARVE_RETURN_IF_ERROR(Prepare(cache));
  rope.Prepare(positions);
  Embed(tokens);
  Lap(&ForwardTimes::other_us);
  const Status begun = cache.BeginStep(entries);
  Lap(&ForwardTimes::cache_us);
  if (!begun.ok()) return begun;  // a step that somebody else left open stays theirs
  const Status run = RunLayers(cache);
  if (!run.ok()) {
    cache.AbortStep();
    Lap(&ForwardTimes::cache_us);
    return run;
  }
  if (logits_from < num_tokens) WriteLogits(logits_from, logits);
  const Status ended = cache.EndStep();
  Lap(&ForwardTimes::cache_us);
  return ended;
}

LlamaRunner::LlamaRunner(std::shared_ptr<const LlamaModel> model, Executor& executor,
                         ProductPrecision precision)
    : model_(std::move(model)), impl_(std::make_unique<Impl>(*model_, executor, precision)) {}

LlamaRunner::~LlamaRunner() = default;

Status LlamaRunner::Forward(Cache& cache, SequenceId sequence, std::span<const int32_t> tokens,
                            Logits which, float* logits,
                            const std::function<bool(int64_t)>& progress) {
  impl_->lap_start = Clock::now();
  VARVE_RETURN_IF_ERROR(
      impl_->CheckCall(cache, tokens, which != Logits::kNone && logits == nullptr));
  const size_t vocab_size = impl_->config.vocab_size;
  size_t done = 0;
  while (done < tokens.size()) {
    const Result<int> most = cache.MaxStepTokens(sequence);
    Status status = most.status();
    if (most.ok()) {
      const size_t count = std::min(tokens.size() - done, static_cast<size_t>(*most));
      const bool last = done + count == tokens.size();
      int logits_from = static_cast<int>(count);
      if (which == Logits::kAll) logits_from = 0;
      if (which == Logits::kLast && last) logits_from = static_cast<int>(count) - 1;
      float* out = which == Logits::kAll ? logits + done * vocab_size : logits;
      impl_->entries.assign(1, {.sequence = sequence, .num_tokens = static_cast<int>(count)});
      status = impl_->Step(cache, tokens.subspan(done, count), logits_from, out);
      if (status.ok()) done += count;
    }
    if (status.ok() && progress && !progress(static_cast<int64_t>(done))) {
      status = FailedPrecondition("stopped");
    }
    if (!status.ok()) {
      return Status(status.code(), fmt::format("after {} of {} tokens: {}", done, tokens.size(),
                                               status.message()));
    }
  }
  return {};
}

Status LlamaRunner::Decode(Cache& cache, std::span<const DecodeEntry> entries, float* logits) {
  impl_->lap_start = Clock::now();
  impl_->entries.clear();
  impl_->decode_tokens.clear();
  for (const DecodeEntry& entry : entries) {
    impl_->entries.push_back({.sequence = entry.sequence, .num_tokens = 1});
    impl_->decode_tokens.push_back(entry.token);
  }
  VARVE_RETURN_IF_ERROR(impl_->CheckCall(cache, impl_->decode_tokens, logits == nullptr));
  return impl_->Step(cache, impl_->decode_tokens, 0, logits);
}

const ForwardTimes& LlamaRunner::times() const { return impl_->times; }

void LlamaRunner::ResetTimes() { impl_->times = {}; }

size_t LlamaRunner::scratch_bytes() const {
  size_t floats = 0;
  for (const std::vector<float>* buffer :
       {&impl_->residual, &impl_->normed, &impl_->queries, &impl_->keys, &impl_->values,
        &impl_->attended, &impl_->gate, &impl_->up}) {
    floats += buffer->capacity();
  }
  return floats * sizeof(float) + impl_->linear.scratch_bytes();
}

}  // namespace varve
