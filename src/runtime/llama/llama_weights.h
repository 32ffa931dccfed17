// LlamaWeights: the tensors of a model, found and checked once.
//
// Matrices are views of where they are stored: the mapped file, or a mapping of our own for random
// weights; this object keeps either alive. Norms and biases are a few KiB per layer and are copied
// to f32. Immutable after it was made.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_WEIGHTS_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/weights.h"
#include "runtime/llama/llama_config.h"
#include "varve/status.h"

namespace varve {

// One layer; q = num_heads * head_dim, kv = num_kv_heads * head_dim.
struct LlamaLayer {
  std::vector<float> attention_norm;       // [width]
  WeightMatrix query;                      // [q, width]
  WeightMatrix key;                        // [kv, width]
  WeightMatrix value;                      // [kv, width]
  WeightMatrix attention_output;           // [width, q]
  std::vector<float> query_bias;           // [q], or empty
  std::vector<float> key_bias;             // [kv], or empty
  std::vector<float> value_bias;           // [kv], or empty
  std::vector<float> output_bias;          // [width], or empty
  std::vector<float> query_norm;           // [head_dim], or empty
  std::vector<float> key_norm;             // [head_dim], or empty
  std::vector<float> attention_post_norm;  // [width], or empty
  std::vector<float> ffn_norm;             // [width]
  WeightMatrix ffn_gate;                   // [ffn_width, width]
  WeightMatrix ffn_up;                     // [ffn_width, width]
  WeightMatrix ffn_down;                   // [width, ffn_width]
  std::vector<float> ffn_post_norm;        // [width], or empty
};

// Anonymous memory in huge pages where the system has them; null if it has none left.
class WeightMemory {
 public:
  static std::unique_ptr<WeightMemory> Map(size_t bytes);
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  WeightMemory(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  size_t bytes_;
};

// Whose product every token takes.
template <class Layer>
auto MatricesOf(Layer& layer) -> std::array<decltype(&layer.query), 7> {
  return {&layer.query,    &layer.key,    &layer.value,   &layer.attention_output,
          &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down};
}

struct LlamaWeights {
  WeightMatrix token_embedding;  // [vocab_size, width]
  std::vector<LlamaLayer> layers;
  std::vector<float> output_norm;  // [width]
  WeightMatrix output;             // [vocab_size, width]; the embedding again if tied

  std::shared_ptr<const GgufFile> file;  // owns the bytes of a loaded model
  std::shared_ptr<WeightMemory> memory;  // owns those of a random one
  std::shared_ptr<WeightMemory> woven;   // owns the second copy of a repacked one (woven_weights.h)
};

// Every tensor of the config, with its shape checked; a tensor that the forward pass would not use
// is refused by name, since the result would silently be that of another model.
Result<std::unique_ptr<LlamaWeights>> LoadLlamaWeights(std::shared_ptr<const GgufFile> file,
                                                       const LlamaConfig& config);

// Made-up weights of any type on which activations stay of order one; equal seeds give equal bytes.
Result<std::unique_ptr<LlamaWeights>> RandomLlamaWeights(const LlamaConfig& config, WeightType type,
                                                         uint64_t seed);

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_WEIGHTS_H_
