// WhisperDecoder: one step of the text decoder, for any number of beams over one window of speech.
//
// Self attention appends to a cache whose sequences are the beams. Cross attention reads another
// cache, one sequence of audio_ctx rows per window, with the queries of all beams in one request:
// its pages are read once for all of them. Owns the activations of a step and keeps them for the
// next. Not thread-safe; the work is spread over the executor.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_DECODER_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/whisper/whisper_model.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/step.h"

namespace varve {

// Sees what attention takes and gives, layer by layer. All rows are [num_tokens, text_state].
class WhisperObserver {
 public:
  virtual ~WhisperObserver() = default;
  virtual void OnSelf(int /*layer*/, int /*num_tokens*/, const float* /*queries*/,
                      const float* /*keys*/, const float* /*values*/, const float* /*output*/) {}
  virtual void OnCross(int /*layer*/, int /*num_tokens*/, const float* /*queries*/,
                       const float* /*output*/) {}
};

struct WhisperStep {
  Cache* self = nullptr;
  std::span<const StepEntry> entries;  // beams
  std::span<const int32_t> tokens;     // of all entries, behind one another: T
  Cache* cross = nullptr;
  SequenceId window;                    // of `cross`
  std::span<const int> wanted = {};     // tokens, by index, whose logits are asked for
  float* logits = nullptr;              // [wanted, vocab]
  WhisperObserver* observer = nullptr;  // or null
};

class WhisperDecoder {
 public:
  // `executor` is not owned.
  WhisperDecoder(std::shared_ptr<const WhisperModel> model, Executor& executor,
                 ProductPrecision precision);

  // Begins, computes and ends a step of the self cache; on an error that is as before. A position
  // beyond text_ctx is kInvalidArgument.
  Status Run(const WhisperStep& step);

  // The rows of a window for cross attention: encoded [audio_ctx, audio_state] becomes a sequence
  // of `cross` with audio_ctx rows, all pages sealed. On an error there is no such sequence.
  Result<SequenceId> AppendWindow(Cache& cross, const float* encoded);

 private:
  Status Embed(const WhisperStep& step);
  Status AttendSelf(Step& running, const WhisperStep& step, int layer);
  Status AttendCross(const WhisperStep& step, int layer);
  void WriteLogits(const WhisperStep& step);

  std::shared_ptr<const WhisperModel> model_;
  const WhisperConfig& config_;
  Executor& executor_;
  LinearLayers linear_;
  int num_tokens_ = 0;                   // T
  std::vector<AttendRequest> requests_;  // [entries]
  std::vector<float> residual_;          // [T, state]
  std::vector<float> normed_;            // [T, state]
  std::vector<float> queries_;           // [T, state]
  std::vector<float> keys_;              // [T, state]
  std::vector<float> values_;            // [T, state]
  std::vector<float> attended_;          // [T, state]
  std::vector<float> hidden_;            // [T, 4 state]
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_DECODER_H_
