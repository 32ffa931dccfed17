// SpeechRunner: a Whisper model on Varve caches: windows of speech encoded once, text decoded over
// them.
//
// Two caches over one page pool. The self cache has a sequence per beam; forks share pages. The
// cross cache has a sequence per window, sealed in the plan's rung (cross=) as soon as the encoder
// is done. Windows are found again by a hash of model and sound, so that decoding the same sound
// again, at another temperature or for another task, does not encode it again; the last few stay.
// Pages of what has ended go back to the pool and to whoever comes next, also to another runner
// that shares it.
//
// Not thread-safe: one runner per thread, each with its executor. Results do not depend on the
// number of threads.

#ifndef VARVE_RUNTIME_WHISPER_SPEECH_RUNNER_H_
#define VARVE_RUNTIME_WHISPER_SPEECH_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/whisper/whisper_decoder.h"
#include "runtime/whisper/whisper_encoder.h"
#include "runtime/whisper/whisper_model.h"
#include "varve/cache.h"
#include "varve/page_memory.h"

namespace varve {

// What the encoder made of the last few windows, for runners of one model that have different
// plans: each window is encoded once for all of them. Thread-safe.
class EncodedWindows {
 public:
  struct Window {
    std::vector<float> rows;  // [audio_ctx, audio_state]
    double encode_us = 0;     // that it took
  };

  explicit EncodedWindows(size_t max_windows) : max_windows_(max_windows) {}

  std::shared_ptr<const Window> Find(uint64_t hash) const;
  void Add(uint64_t hash, std::shared_ptr<const Window> window);

 private:
  const size_t max_windows_;
  mutable std::mutex mutex_;
  std::deque<std::pair<uint64_t, std::shared_ptr<const Window>>> windows_;  // oldest first
};

// Address space that a pool of speech keeps for the next window: slabs of a large model's.
inline constexpr uint64_t kSpeechReserveBytes = uint64_t{1} << 30;

struct SpeechOptions {
  Plan plan;  // of both caches: speech_plans.h
  ProductPrecision precision = ProductPrecision::kF32;
  std::shared_ptr<PagePool> pool;           // null: one of its own
  int max_windows = 1;                      // whose cross rows are kept; at least 1
  std::shared_ptr<EncodedWindows> encoded;  // shared with other runners of the model; or null
};

// Counts since creation, bytes at their highest.
struct SpeechStats {
  uint64_t windows_encoded = 0;  // by this runner
  uint64_t windows_reused = 0;   // their cross rows were still there
  uint64_t windows_shared = 0;   // encoded by another runner
  uint64_t steps = 0;            // of the decoder
  uint64_t tokens = 0;           // that it was fed, over all beams
  double encode_us = 0;          // cross rows included
  double shared_us = 0;          // that others took to encode what was shared
  double decode_us = 0;
  uint64_t self_bytes = 0;  // payload of live pages, after a step
  uint64_t cross_bytes = 0;
};

class SpeechRunner {
 public:
  // `executor` is not owned. Refuses a plan that one of the caches cannot do.
  static Result<std::unique_ptr<SpeechRunner>> Create(std::shared_ptr<const WhisperModel> model,
                                                      Executor& executor, SpeechOptions options);

  const WhisperModel& model() const { return *model_; }
  Executor& executor() { return executor_; }
  Cache& self() { return *self_; }
  Cache& cross() { return *cross_; }

  // The window of mel [mels, 2 * audio_ctx], rows `stride` apart, encoded unless it is still there.
  // It stays at least until the next call.
  Result<SequenceId> Encode(const float* mel, ptrdiff_t stride);

  // A step of the decoder over a window; as WhisperStep says.
  Status Decode(SequenceId window, std::span<const StepEntry> entries,
                std::span<const int32_t> tokens, std::span<const int> wanted, float* logits);

  // Feeds `tokens` to a sequence of their own, which is gone afterwards, and shows it to
  // `observer`.
  Status Observe(SequenceId window, std::span<const int32_t> tokens, WhisperObserver& observer);

  const SpeechStats& stats() const { return stats_; }

 private:
  struct Window {
    uint64_t hash;
    SequenceId sequence;
  };

  SpeechRunner(std::shared_ptr<const WhisperModel> model, Executor& executor,
               ProductPrecision precision);
  Result<std::shared_ptr<const EncodedWindows::Window>> RunEncoder(const float* mel,
                                                                   ptrdiff_t stride, uint64_t hash);

  std::shared_ptr<const WhisperModel> model_;
  Executor& executor_;
  size_t max_windows_ = 1;
  std::unique_ptr<Cache> self_;
  std::unique_ptr<Cache> cross_;
  std::unique_ptr<WhisperEncoder> encoder_;
  WhisperDecoder decoder_;
  std::list<Window> windows_;  // the one used last comes first
  std::shared_ptr<EncodedWindows> encoded_;
  SpeechStats stats_;
};

// What a file of that length needs at most in pages: cross rows of one window, and self rows of the
// prompt and of about ten tokens a second and a fifth more for each beam, up to the model's limit.
// For admission; nothing is ever cut to it.
Result<uint64_t> EstimateSpeechBytes(const WhisperConfig& config, const Plan& plan, int beams,
                                     double seconds, int prompt_tokens);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_SPEECH_RUNNER_H_
