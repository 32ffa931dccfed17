// DecoderRunner: forward passes of a model; owns the scratch of one at a time.
//
// This class checks the call, cuts tokens into steps that the cache takes, and counts time; a
// family of models runs one step (RunStep). That is one virtual call per step, none per token or
// row. Tokens are ids: where they come from (text, or what an encoder asks for) is the caller's
// matter. Not thread-safe; the work of a step is spread over the executor that the runner was made
// with.

#ifndef VARVE_RUNTIME_MODEL_DECODER_RUNNER_H_
#define VARVE_RUNTIME_MODEL_DECODER_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/forward_times.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

class DecoderModel;

enum class Logits { kNone, kLast, kAll };

// Most tokens of one step. The activations of a step grow with its tokens, and products gain
// nothing from more rows than this.
inline constexpr int kMaxForwardTokens = 512;

// One sequence of a decode step.
struct DecodeEntry {
  SequenceId sequence;
  int32_t token = 0;
};

class DecoderRunner {
 public:
  virtual ~DecoderRunner() = default;
  DecoderRunner(const DecoderRunner&) = delete;
  DecoderRunner& operator=(const DecoderRunner&) = delete;

  const DecoderModel& model() const { return *model_; }

  // Appends `tokens` to a sequence, in steps of what the cache allows at most. Logits of the last
  // token, or of all, are written to `logits` [1 or tokens.size(), vocab_size]. On an error the
  // tokens of finished steps stay in the cache; the message says how many.
  // `progress`, if given, is called after each step with the number of tokens done; returning
  // false stops with kFailedPrecondition "stopped".
  Status Forward(Cache& cache, SequenceId sequence, std::span<const int32_t> tokens, Logits which,
                 float* logits, const std::function<bool(int64_t)>& progress = {});

  // One token each for several sequences, in one step; logits [entries.size(), vocab_size].
  Status Decode(Cache& cache, std::span<const DecodeEntry> entries, float* logits);

  const ForwardTimes& times() const { return clock_.times(); }
  void ResetTimes() { clock_.Reset(); }
  virtual size_t scratch_bytes() const = 0;

 protected:
  explicit DecoderRunner(std::shared_ptr<const DecoderModel> model);

  ForwardClock& clock() { return clock_; }

 private:
  // Begins, computes and ends one step of the cache; on an error the cache is as before. `tokens`
  // are those of all entries, behind one another, T in all, each within the vocabulary. Tokens
  // [logits_from, T) get logits [T - logits_from, vocab_size]. The clock runs; laps are the
  // family's.
  virtual Status RunStep(Cache& cache, std::span<const StepEntry> entries,
                         std::span<const int32_t> tokens, int logits_from, float* logits) = 0;

  Status CheckCall(const Cache& cache, std::span<const int32_t> tokens) const;

  std::shared_ptr<const DecoderModel> model_;
  ForwardClock clock_;
  std::vector<StepEntry> entries_;  // of Decode
  std::vector<int32_t> tokens_;     // of Decode
};

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_DECODER_RUNNER_H_
