// What encoder and decoder share: the parts of a pre-norm block on rows of f32, spread over an
// executor. Rows are cut by data, so that results do not depend on the number of threads.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_BLOCK_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_BLOCK_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/whisper/whisper_weights.h"
#include "varve/executor.h"

namespace varve {

inline constexpr float kWhisperNormEpsilon = 1e-5f;

// task(row) for rows [0, num_rows); `floats` is what one row reads. Few floats stay on the calling
// thread.
void ForRows(Executor& executor, int num_rows, size_t floats,
             const std::function<void(size_t row)>& task);

// rows [num_rows, state] to out, which may be rows itself.
void NormRows(Executor& executor, const WhisperNorm& norm, int num_rows, const float* rows,
              float* out);

// residual += mlp(norm(residual)). `normed` [num_rows, state] and `hidden` [num_rows, 4 * state]
// are scratch.
void AddMlp(Executor& executor, LinearLayers& linear, const WhisperBlock& block, int num_rows,
            float* residual, float* normed, float* hidden);

// normed [num_rows, state] through the three projections.
void ProjectRows(LinearLayers& linear, const WhisperAttention& attention, int num_rows,
                 const float* normed, float* queries, float* keys, float* values);

// residual += out(attended).
void AddAttended(LinearLayers& linear, const WhisperAttention& attention, int num_rows,
                 const float* attended, float* residual);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_BLOCK_H_
