// WhisperEncoder: a window of log-mel frames to the rows that the decoder's cross attention reads.
//
// Convolutions and projections are products (LinearLayers); attention is that of a Varve cache, of
// one layer and in f32, whose rows a step takes in and forgets again. Owns its scratch and keeps it
// for the next window. Not thread-safe; the work is spread over the executor, and the bits do not
// depend on its threads.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_ENCODER_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_ENCODER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/whisper/whisper_model.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

class WhisperEncoder {
 public:
  // `executor` is not owned.
  static Result<std::unique_ptr<WhisperEncoder>> Create(std::shared_ptr<const WhisperModel> model,
                                                        Executor& executor,
                                                        ProductPrecision precision,
                                                        std::shared_ptr<PagePool> pool);

  // mel [mels, 2 * audio_ctx], rows `stride` apart, to output [audio_ctx, audio_state].
  Status Run(const float* mel, ptrdiff_t stride, float* output);

  // Where the time of all windows went.
  struct Times {
    double convolve_us = 0;
    double attend_us = 0;
    double all_us = 0;
  };
  const Times& times() const { return times_; }

 private:
  WhisperEncoder(std::shared_ptr<const WhisperModel> model, Executor& executor,
                 ProductPrecision precision);

  void Convolve(const float* mel, ptrdiff_t stride, float* residual);
  Status Attend(const WhisperAttention& attention, float* residual);

  std::shared_ptr<const WhisperModel> model_;
  const WhisperConfig& config_;
  Executor& executor_;
  LinearLayers linear_;
  std::unique_ptr<Cache> cache_;  // one layer
  SequenceId sequence_;           // always empty between windows
  Times times_;
  std::vector<float> frames_;    // [2 audio_ctx + 2, max(mels, state)]: zeros at both ends
  std::vector<float> filtered_;  // [2 audio_ctx + 2, state]: likewise
  std::vector<float> normed_;    // [audio_ctx, state]
  std::vector<float> queries_;   // [audio_ctx, state]
  std::vector<float> keys_;      // [audio_ctx, state]
  std::vector<float> values_;    // [audio_ctx, state]
  std::vector<float> hidden_;    // [audio_ctx, 4 state]
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_ENCODER_H_
