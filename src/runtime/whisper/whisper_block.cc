#include "runtime/whisper/whisper_block.h"

#include <algorithm>
#include <array>

#include "runtime/kernels/activations.h"

namespace varve {
namespace {

// Elementwise work on fewer floats than this is done before another thread has woken up.
constexpr size_t kMinParallelFloats = 32768;

}  // namespace

void ForRows(Executor& executor, int num_rows, size_t floats,
             const std::function<void(size_t row)>& task) {
  const auto rows = static_cast<size_t>(num_rows);
  if (rows * floats < kMinParallelFloats) {
    for (size_t row = 0; row < rows; ++row) task(row);
    return;
  }
  const size_t run = std::max<size_t>(1, kMinParallelFloats / 4 / floats);
  executor.ParallelFor((rows + run - 1) / run, [&](size_t index, int) {
    const size_t end = std::min(rows, (index + 1) * run);
    for (size_t row = index * run; row < end; ++row) task(row);
  });
}

void NormRows(Executor& executor, const WhisperNorm& norm, int num_rows, const float* rows,
              float* out) {
  const size_t state = norm.weight.size();
  ForRows(executor, num_rows, state, [&](size_t row) {
    LayerNorm(rows + row * state, norm.weight.data(), norm.bias.data(), static_cast<int>(state),
              kWhisperNormEpsilon, out + row * state);
  });
}

void AddMlp(Executor& executor, LinearLayers& linear, const WhisperBlock& block, int num_rows,
            float* residual, float* normed, float* hidden) {
  NormRows(executor, block.mlp_norm, num_rows, residual, normed);
  const LinearTask in{.weights = &block.mlp_in,
                      .bias = block.mlp_in_bias.data(),
                      .input = normed,
                      .output = hidden};
  linear.Run(num_rows, {&in, 1});
  const auto width = static_cast<size_t>(block.mlp_in.rows);
  ForRows(executor, num_rows, width, [&](size_t row) {
    Gelu(hidden + row * width, static_cast<int>(width), hidden + row * width);
  });
  const LinearTask out{.weights = &block.mlp_out,
                       .bias = block.mlp_out_bias.data(),
                       .input = hidden,
                       .output = residual,
                       .add = true};
  linear.Run(num_rows, {&out, 1});
}

// clang-tidy 14 does not see what designated initializers hand on.
// NOLINTBEGIN(readability-non-const-parameter)
void ProjectRows(LinearLayers& linear, const WhisperAttention& attention, int num_rows,
                 const float* normed, float* queries, float* keys, float* values) {
  const std::array<LinearTask, 3> tasks = {{
      {.weights = &attention.query,
       .bias = attention.query_bias.data(),
       .input = normed,
       .output = queries},
      {.weights = &attention.key, .input = normed, .output = keys},
      {.weights = &attention.value,
       .bias = attention.value_bias.data(),
       .input = normed,
       .output = values},
  }};
  linear.Run(num_rows, tasks);
}

void AddAttended(LinearLayers& linear, const WhisperAttention& attention, int num_rows,
                 const float* attended, float* residual) {
  const LinearTask task{.weights = &attention.out,
                        .bias = attention.out_bias.data(),
                        .input = attended,
                        .output = residual,
                        .add = true};
  linear.Run(num_rows, {&task, 1});
}
// NOLINTEND(readability-non-const-parameter)

}  // namespace varve
