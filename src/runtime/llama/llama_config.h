// What a Llama-family model is, apart from its weights: read from GGUF metadata, or a preset.
//
// A plain value. Variants are data, not subclasses: a family sets flags here, and
// forward_step.cc has one forward pass.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_CONFIG_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_CONFIG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "varve/status.h"

namespace varve {

enum class RopeOrder {
  kInterleaved,  // pairs (0,1) (2,3) …: GGUF files of llama and mistral
  kHalves,       // pairs (0,d/2) (1,d/2+1) …: qwen, gemma
};

enum class RopeScaling { kNone, kLinear, kYarn, kLlama3 };

struct RopeConfig {
  RopeOrder order = RopeOrder::kInterleaved;
  int dims = 0;  // rotated dimensions of a head; the rest passes through
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;            // linear, yarn
  double attention_factor = 1.0;  // multiplies cos and sin; yarn: 0.1 ln(factor) + 1 is in it
  int64_t original_context = 0;   // yarn
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  std::vector<float> frequency_divisors;  // [dims / 2] from rope_freqs.weight (llama3), or empty
};

enum class Activation { kSilu, kGeluTanh };

struct LlamaConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3", …
  std::string name;
  int num_layers = 0;
  int width = 0;  // of the residual stream
  int ffn_width = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int64_t context = 0;  // trained context length
  float norm_epsilon = 1e-5f;
  RopeConfig rope;
  bool qkv_bias = false;    // qwen2
  bool qk_norm = false;     // qwen3, gemma3: RMSNorm of each head's q and k before RoPE
  bool post_norms = false;  // gemma: RMSNorm of what a block adds to the residual stream
  bool tied_embeddings = false;
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;     // 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0.0f;  // 0: none
  float final_soft_cap = 0.0f;      // of the logits; 0: none

  // The model's own sliding window; 0: none. With a period p > 1 the last of every p layers sees
  // everything.
  int64_t window = 0;
  int window_period = 1;
  std::optional<RopeConfig> local_rope;  // of layers with a window, where it differs

  int64_t LayerWindow(int layer) const {
    const bool all = window_period > 1 && layer % window_period == window_period - 1;
    return all ? 0 : window;
  }
};

// Refuses an architecture that is not built in (kUnimplemented, with the list of those that are)
// and numbers that contradict each other, naming the key.
Result<LlamaConfig> ReadLlamaConfig(const GgufFile& file);

// The values of general.architecture that ReadLlamaConfig takes.
std::span<const std::string_view> LlamaArchitectures();

// Shapes for speed measurements without a download: "qwen3-0.6b", "small-1024", "deep-512",
// "llama-3.1-8b".
Result<LlamaConfig> PresetConfig(std::string_view name);
std::span<const std::string_view> PresetNames();

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_CONFIG_H_
