// LlamaModel: the forward pass of the Llama family on a Varve cache.
//
//   auto file = GgufFile::Open(path);
//   auto model = LlamaModel::Load(*file);
//   auto cache = Cache::Create((*model)->cache_shape(), {.plan = plan, .executor = &executor});
//   LlamaRunner runner(*model, executor);             // scratch; one per cache that runs at once
//   runner.Forward(*cache, sequence, tokens, Logits::kLast, logits);
//
// Weights stay where the file is mapped: loading reads names and shapes only. A model is immutable
// and may serve many runners at once.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/linear.h"
#include "runtime/llama/llama_config.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

struct LlamaWeights;  // llama_weights.h

class LlamaModel {
 public:
  // Checks that every tensor is there with the right shape; touches no tensor data but the norms
  // and the first bytes of each, for the fingerprint.
  static Result<std::shared_ptr<const LlamaModel>> Load(std::shared_ptr<const GgufFile> file);
  // Random weights of the given type, for speed: deterministic in `seed`. Owns its memory.
  static Result<std::shared_ptr<const LlamaModel>> Random(const LlamaConfig& config,
                                                          WeightType type, uint64_t seed);
  ~LlamaModel();

  const LlamaConfig& config() const { return config_; }
  const LlamaWeights& weights() const { return *weights_; }
  // page_tokens 0: the plan decides.
  CacheShape cache_shape() const;
  // Stored bytes that one decoded token reads: all layers and the output matrix.
  uint64_t weight_bytes_per_token() const;
  // ModelFingerprint of the file; 0 for random weights.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  LlamaModel();
  LlamaConfig config_;
  std::unique_ptr<LlamaWeights> weights_;
  uint64_t fingerprint_ = 0;
};

enum class Logits { kNone, kLast, kAll };

// Microseconds spent so far, by part; the sum is the time inside Forward and Decode, less that of
// the caller's `progress`.
struct ForwardTimes {
  double linear_us = 0;
  double attention_us = 0;  // Append and Attend
  double cache_us = 0;      // BeginStep and EndStep: sealing, eviction
  double other_us = 0;      // embedding, norms, rotary, activations
};

// One sequence of a decode step.
struct DecodeEntry {
  SequenceId sequence;
  int32_t token = 0;
};

// Runs a model; owns the scratch of one forward pass at a time. Not thread-safe.
class LlamaRunner {
 public:
  // `executor` is not owned; give the cache the same one.
  LlamaRunner(std::shared_ptr<const LlamaModel> model, Executor& executor,
              ProductPrecision precision = ProductPrecision::kF32);
  ~LlamaRunner();

  const LlamaModel& model() const { return *model_; }

  // Appends `tokens` to a sequence, in steps of what the cache allows at most. Logits of the last
  // token, or of all, are written to `logits` [1 or tokens.size(), vocab_size]. On an error the
  // tokens of finished steps stay in the cache; the message says how many.
  // `progress`, if given, is called after each step with the number of tokens done; returning
  // false stops with kFailedPrecondition "stopped".
  Status Forward(Cache& cache, SequenceId sequence, std::span<const int32_t> tokens, Logits which,
                 float* logits, const std::function<bool(int64_t)>& progress = {});

  // One token each for several sequences, in one step; logits [entries.size(), vocab_size].
  Status Decode(Cache& cache, std::span<const DecodeEntry> entries, float* logits);

  const ForwardTimes& times() const;
  void ResetTimes();
  size_t scratch_bytes() const;

 private:
  struct Impl;
  std::shared_ptr<const LlamaModel> model_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_
