// StepBuffers: the activations of one step on a GPU, in one range of memory that only grows.
//
// A step takes them anew; nothing survives it. Every buffer is aligned to 256 bytes, as products
// want it. Not thread-safe.

#ifndef VARVE_RUNTIME_CUDA_STEP_BUFFERS_H_
#define VARVE_RUNTIME_CUDA_STEP_BUFFERS_H_

#include <cstddef>
#include <cstdint>

#include "base/align.h"
#include "cuda/memory/device_buffers.h"
#include "runtime/llama/llama_config.h"
#include "varve/status.h"

namespace varve {

class StepBuffers {
 public:
  // Room for T tokens and logits of `logit_rows`. Waits for the device only where there was less.
  Status Reserve(const LlamaConfig& config, int num_tokens, int logit_rows) {
    const size_t bytes = Carve(config, num_tokens, logit_rows, nullptr);
    VARVE_RETURN_IF_ERROR(memory_.Reserve(bytes));
    Carve(config, num_tokens, logit_rows, memory_.as<std::byte>());
    return Status();
  }
  size_t bytes() const { return memory_.bytes(); }

  float* residual = nullptr;   // [T, width]
  float* projected = nullptr;  // [T, width], where a norm lies before the sum
  void* normed = nullptr;      // [T, width] of 16 bits
  float* qkv = nullptr;        // [T, num_heads + 2 * num_kv_heads, head_dim]
  float* queries = nullptr;    // [T, num_heads, head_dim]
  float* keys = nullptr;       // [T, num_kv_heads, head_dim]
  float* values = nullptr;     // [T, num_kv_heads, head_dim]
  void* attended = nullptr;    // [T, num_heads, head_dim] of 16 bits
  float* gate_up = nullptr;    // [T, 2, ffn_width]
  void* gated = nullptr;       // [T, ffn_width] of 16 bits
  float* logits = nullptr;     // [logit_rows, vocab_size]

 private:
  // Sets the pointers; returns the bytes that they take in all.
  size_t Carve(const LlamaConfig& config, int num_tokens, int logit_rows, std::byte* base) {
    constexpr size_t kAlignment = 256;
    size_t used = 0;
    const auto take = [&](int rows, int64_t columns, size_t value_bytes) {
      std::byte* at = base == nullptr ? nullptr : base + used;
      used += AlignUp(static_cast<size_t>(rows) * static_cast<size_t>(columns) * value_bytes,
                      kAlignment);
      return at;
    };
    const auto floats = [&](int rows, int64_t columns) {
      return reinterpret_cast<float*>(take(rows, columns, sizeof(float)));
    };
    const auto halves = [&](int64_t columns) -> void* { return take(num_tokens, columns, 2); };
    const int64_t q = int64_t{config.num_heads} * config.head_dim;
    const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
    residual = floats(num_tokens, config.width);
    projected = config.post_norms ? floats(num_tokens, config.width) : nullptr;
    normed = halves(config.width);
    qkv = floats(num_tokens, q + 2 * kv);
    queries = floats(num_tokens, q);
    keys = floats(num_tokens, kv);
    values = floats(num_tokens, kv);
    attended = halves(q);
    gate_up = floats(num_tokens, int64_t{2} * config.ffn_width);
    gated = halves(config.ffn_width);
    logits = floats(logit_rows, config.vocab_size);
    return used;
  }

  cuda::DeviceScratch memory_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_CUDA_STEP_BUFFERS_H_
