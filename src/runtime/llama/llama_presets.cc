// Shapes for speed measurements; the weights are made up by LlamaModel::Random.

#include <fmt/format.h>

#include "runtime/llama/llama_config.h"

namespace varve {
namespace {

// The shape of Qwen3-0.6B: 596 million weights, 633 MB in Q8_0.
LlamaConfig Qwen3Small() {
  LlamaConfig config;
  config.architecture = "qwen3";
  config.name = "qwen3-0.6b";
  config.num_layers = 28;
  config.width = 1024;
  config.ffn_width = 3072;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 151936;
  config.context = 40960;
  config.norm_epsilon = 1e-6f;
  config.rope.order = RopeOrder::kHalves;
  config.rope.dims = config.head_dim;
  config.rope.base = 1e6;
  config.qk_norm = true;
  config.tied_embeddings = true;
  return config;
}

// The shape of Llama-3.1-8B: 8.0 billion weights, 16 GB in F16.
LlamaConfig Llama8B() {
  LlamaConfig config;
  config.architecture = "llama";
  config.name = "llama-3.1-8b";
  config.num_layers = 32;
  config.width = 4096;
  config.ffn_width = 14336;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  config.context = 131072;
  config.rope.dims = config.head_dim;
  config.rope.base = 5e5;
  return config;
}

// Eight layers of width 1024 with few KV heads; the output matrix is one of its own.
LlamaConfig Small1024() {
  LlamaConfig config;
  config.architecture = "llama";
  config.name = "small-1024";
  config.num_layers = 8;
  config.width = 1024;
  config.ffn_width = 2816;
  config.num_heads = 16;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.vocab_size = 32000;
  config.context = 32768;
  config.rope.dims = config.head_dim;
  return config;
}

// Thirty-two thin layers: what a rule for some layers does to a deep model.
LlamaConfig Deep512() {
  LlamaConfig config;
  config.architecture = "llama";
  config.name = "deep-512";
  config.num_layers = 32;
  config.width = 512;
  config.ffn_width = 1408;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  config.vocab_size = 8192;
  config.context = 32768;
  config.rope.dims = config.head_dim;
  return config;
}

}  // namespace

std::span<const std::string_view> PresetNames() {
  static constexpr std::string_view kNames[] = {"qwen3-0.6b", "small-1024", "deep-512",
                                                "llama-3.1-8b"};
  return kNames;
}

Result<LlamaConfig> PresetConfig(std::string_view name) {
  for (const auto make : {Qwen3Small, Small1024, Deep512, Llama8B}) {
    LlamaConfig config = make();
    if (config.name == name) return config;
  }
  return NotFound(
      fmt::format("random model \"{}\": known are {}", name, fmt::join(PresetNames(), ", ")));
}

}  // namespace varve
