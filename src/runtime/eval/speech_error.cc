#include "runtime/eval/speech_error.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "varve/step.h"

namespace varve {
namespace {

// What attention took and gave in a run, by layer: [tokens, state] each.
struct Recording final : WhisperObserver {
  struct Rows {
    std::vector<float> queries, keys, values, output;
  };
  std::vector<Rows> self, cross;
  ptrdiff_t state;

  explicit Recording(const WhisperConfig& config)
      : self(config.text_layers), cross(config.text_layers), state(config.text_state) {}

  void OnSelf(int layer, int num_tokens, const float* queries, const float* keys,
              const float* values, const float* output) override {
    const ptrdiff_t size = num_tokens * state;
    self[layer] = {{queries, queries + size},
                   {keys, keys + size},
                   {values, values + size},
                   {output, output + size}};
  }
  void OnCross(int layer, int num_tokens, const float* queries, const float* output) override {
    const ptrdiff_t size = num_tokens * state;
    cross[layer].queries.assign(queries, queries + size);
    cross[layer].output.assign(output, output + size);
  }
};

// Compares the cache's rows of one layer and head with rows [count, heads, dim].
Status CompareRows(const Cache& cache, SequenceId sequence, int layer, Part part, int64_t count,
                   const std::vector<float>& exact, ErrorSum* errors) {
  const CacheShape& shape = cache.shape();
  const int dim = shape.key_dim;
  std::vector<float> rows(static_cast<size_t>(count) * dim);
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    VARVE_RETURN_IF_ERROR(
        cache.ReadRows(sequence, layer, head, part, 0, count, rows.data()).status());
    for (int64_t row = 0; row < count; ++row) {
      errors->Add(rows.data() + row * dim, exact.data() + (row * shape.num_kv_heads + head) * dim,
                  dim);
    }
  }
  return Status();
}

Status CompareSelf(Cache& cache, const Recording& run, int num_tokens, SpeechErrors* errors) {
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence, cache.CreateSequence());
  std::vector<float> output(static_cast<size_t>(num_tokens) * run.state);
  const auto feed = [&]() -> Status {
    VARVE_ASSIGN_OR_RETURN(Step step, Step::Begin(cache, sequence, num_tokens));
    for (size_t layer = 0; layer < run.self.size(); ++layer) {
      const Recording::Rows& rows = run.self[layer];
      const auto index = static_cast<int>(layer);
      VARVE_RETURN_IF_ERROR(step.Append(index, sequence,
                                        {.data = rows.keys.data(), .num_tokens = num_tokens},
                                        {.data = rows.values.data(), .num_tokens = num_tokens}));
      const AttendRequest request{.sequence = sequence,
                                  .num_queries = num_tokens,
                                  .queries = rows.queries.data(),
                                  .output = output.data()};
      VARVE_RETURN_IF_ERROR(step.Attend(index, {&request, 1}));
      errors->attention.Add(output.data(), rows.output.data(), output.size());
    }
    VARVE_RETURN_IF_ERROR(step.Commit());
    for (size_t layer = 0; layer < run.self.size(); ++layer) {
      const auto index = static_cast<int>(layer);
      VARVE_RETURN_IF_ERROR(CompareRows(cache, sequence, index, Part::kKey, num_tokens,
                                        run.self[layer].keys, &errors->k));
      VARVE_RETURN_IF_ERROR(CompareRows(cache, sequence, index, Part::kValue, num_tokens,
                                        run.self[layer].values, &errors->v));
    }
    return Status();
  };
  const Status fed = feed();
  const Status freed = cache.Free(sequence);
  return fed.ok() ? freed : fed;
}

Status CompareCross(const Cache& exact, SequenceId exact_window, Cache& tested, SequenceId window,
                    const Recording& run, int num_tokens, SpeechErrors* errors) {
  const CacheShape& shape = exact.shape();
  VARVE_ASSIGN_OR_RETURN(const int64_t count, exact.NextPosition(exact_window));
  const size_t size = static_cast<size_t>(count) * shape.key_dim;
  std::vector<float> left(size), right(size);
  std::vector<float> output(static_cast<size_t>(num_tokens) * run.state);
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      for (const Part part : {Part::kKey, Part::kValue}) {
        VARVE_RETURN_IF_ERROR(
            exact.ReadRows(exact_window, layer, head, part, 0, count, left.data()).status());
        VARVE_RETURN_IF_ERROR(
            tested.ReadRows(window, layer, head, part, 0, count, right.data()).status());
        (part == Part::kKey ? errors->k : errors->v).Add(right.data(), left.data(), size);
      }
    }
    const AttendRequest request{.sequence = window,
                                .num_queries = num_tokens,
                                .queries = run.cross[layer].queries.data(),
                                .output = output.data()};
    VARVE_RETURN_IF_ERROR(tested.Attend(layer, {&request, 1}, {.causal = false}));
    errors->attention.Add(output.data(), run.cross[layer].output.data(), output.size());
  }
  return Status();
}

}  // namespace

void ErrorSum::Add(const float* values, const float* exact, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const double error = std::abs(double{values[i]} - exact[i]);
    max = std::max(max, error);
    squares += error * error;
  }
  count += size;
}

double ErrorSum::rms() const {
  return count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
}

Status MeasureSpeechErrors(SpeechRunner& exact, SpeechRunner& tested, const float* mel,
                           ptrdiff_t stride, std::span<const int32_t> tokens,
                           SpeechErrors* errors) {
  const auto num_tokens = static_cast<int>(tokens.size());
  VARVE_ASSIGN_OR_RETURN(const SequenceId exact_window, exact.Encode(mel, stride));
  VARVE_ASSIGN_OR_RETURN(const SequenceId window, tested.Encode(mel, stride));
  Recording run(exact.model().config());
  VARVE_RETURN_IF_ERROR(exact.Observe(exact_window, tokens, run));
  VARVE_RETURN_IF_ERROR(CompareSelf(tested.self(), run, num_tokens, errors));
  return CompareCross(exact.cross(), exact_window, tested.cross(), window, run, num_tokens, errors);
}

}  // namespace varve
