// ForwardStep: one step of a model on a cache, prefill or decode, for any number of sequences.
//
// Owns the activations and the scratch of one step at a time, and keeps them for the next: after
// the largest step so far, nothing of its own is allocated. Not thread-safe; the work of a step is
// spread over the executor. Model, executor, clock and cache are not owned.

#ifndef VARVE_RUNTIME_LLAMA_FORWARD_STEP_H_
#define VARVE_RUNTIME_LLAMA_FORWARD_STEP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/llama/llama_model.h"
#include "runtime/llama/llama_weights.h"
#include "runtime/llama/rope.h"
#include "runtime/model/forward_times.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

class ForwardStep {
 public:
  // `clock` gets the laps of Run; whoever owns it starts it.
  ForwardStep(const LlamaModel& model, Executor& executor, ProductPrecision precision,
              ForwardClock& clock);

  // Begins, computes and ends one step of the cache; on an error the cache is as before. `tokens`
  // are those of all entries, behind one another, T in all, each within the vocabulary. Tokens
  // [logits_from, T) get logits [T - logits_from, vocab_size].
  Status Run(Cache& cache, std::span<const StepEntry> entries, std::span<const int32_t> tokens,
             int logits_from, float* logits);

  size_t scratch_bytes() const;

 private:
  // task(token) for the step's tokens from `first` on; `floats` are what one token reads.
  template <typename Task>
  void ForTokens(int first, size_t floats, const Task& task);

  // Positions of the entries' tokens, and room for all of them.
  Status Prepare(const Cache& cache);
  void Embed(std::span<const int32_t> tokens);
  Status RunLayers(Cache& cache);
  // residual to normed, tokens from `first` on.
  void NormTokens(int first, const std::vector<float>& weight);
  void Project(const LlamaLayer& layer);
  void RotateToken(const LlamaLayer& layer, const RopeTable& table, size_t token);
  Status AttendLayer(Cache& cache, int index);
  // residual += matrix * input + bias, through the norm if there is one. Overwrites normed.
  void AddToResidual(const WeightMatrix& matrix, const std::vector<float>& bias, const float* input,
                     const std::vector<float>& post_norm);
  void FeedForward(const LlamaLayer& layer);
  void WriteLogits(int first_token, float* logits);
  bool HasLocalRope(int layer) const {
    return config_.local_rope.has_value() && config_.LayerWindow(layer) > 0;
  }

  const LlamaConfig& config_;
  const LlamaWeights& weights_;
  const int query_width_;  // num_heads * head_dim
  const int kv_width_;     // num_kv_heads * head_dim
  Executor& executor_;
  ForwardClock& clock_;
  LinearLayers linear_;
  RopeTable rope_;
  RopeTable local_rope_;  // of layers with a window; used only if the config has one

  int num_tokens_ = 0;                   // T
  std::span<const StepEntry> entries_;   // of the step that runs
  std::vector<int64_t> positions_;       // [T]
  std::vector<AttendRequest> requests_;  // [entries]
  std::vector<float> residual_;          // [T, width]
  std::vector<float> normed_;            // [T, width]
  std::vector<float> queries_;           // [T, num_heads, head_dim]
  std::vector<float> keys_;              // [T, num_kv_heads, head_dim]
  std::vector<float> values_;            // [T, num_kv_heads, head_dim]
  std::vector<float> attended_;          // [T, num_heads, head_dim]
  std::vector<float> gate_;              // [T, ffn_width]
  std::vector<float> up_;                // [T, ffn_width]
};

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_FORWARD_STEP_H_
