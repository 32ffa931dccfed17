#include "tests/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace varve {
namespace {

constexpr int kLayers = 2;
constexpr int kWidth = 64;
constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kHeadDim = 32;
constexpr int kFfnWidth = 96;
constexpr int kVocab = 258;

// Byte-level vocabularies write bytes as printable characters. Bytes that are not printable in
// Latin-1 are written as U+0100 and the characters after it, in order.
std::vector<std::string> Vocabulary(const TinyModelOptions& options) {
  std::vector<std::string> tokens;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code = printable ? byte : next++;
    std::string token;
    if (code < 0x80) {
      token += static_cast<char>(code);
    } else {
      token += static_cast<char>(0xC0 | (code >> 6));
      token += static_cast<char>(0x80 | (code & 0x3F));
    }
    tokens.push_back(byte == options.absent_byte ? "<absent>" : token);
  }
  tokens.emplace_back("<bos>");
  tokens.emplace_back("<eos>");
  for (int i = 0; i < options.spare_tokens; ++i)
    tokens.push_back("<spare " + std::to_string(i) + ">");
  return tokens;
}

class Weights {
 public:
  explicit Weights(GgufBuilder& builder) : builder_(builder) {}

  // Returns the values, [rows, cols].
  std::vector<float> Matrix(const std::string& name, int rows, int cols, double gain) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (float& value : values)
      value = static_cast<float>(gain / std::sqrt(cols)) * normal(random_);
    builder_.TensorF32(name, {cols, rows}, values);
    return values;
  }
  void Ones(const std::string& name, int size) {
    builder_.TensorF32(name, {size}, std::vector<float>(static_cast<size_t>(size), 1.0f));
  }

 private:
  GgufBuilder& builder_;
  std::mt19937 random_{17};
};

// The row of a byte of the chain is the embedding of the byte before it, all others are zero.
std::vector<float> ChainOutput(std::string_view chain, const std::vector<float>& embedding) {
  std::vector<float> output(embedding.size(), 0.0f);
  const auto row = [](char byte) {
    return static_cast<ptrdiff_t>(kWidth) * static_cast<unsigned char>(byte);
  };
  for (size_t i = 1; i < chain.size(); ++i) {
    const auto from = embedding.begin() + row(chain[i - 1]);
    std::copy(from, from + kWidth, output.begin() + row(chain[i]));
  }
  return output;
}

GgufBuilder Build(std::string_view chain, const TinyModelOptions& options) {
  GgufBuilder builder;
  const double branch_gain = chain.empty() ? 1.0 : 0.0;
  std::vector<int64_t> types(256, 1);  // normal
  const int64_t num_control = int64_t{2} + options.spare_tokens + options.spare_types;
  types.insert(types.end(), static_cast<size_t>(num_control), 3);
  builder.String("general.architecture", "llama")
      .Int("llama.block_count", kLayers)
      .Int("llama.context_length", options.context)
      .Int("llama.embedding_length", kWidth)
      .Int("llama.feed_forward_length", kFfnWidth)
      .Int("llama.attention.head_count", kHeads)
      .Int("llama.attention.head_count_kv", kKvHeads)
      .Int("llama.attention.key_length", kHeadDim)
      .Int("llama.attention.value_length", kHeadDim)
      .Int("llama.rope.dimension_count", kHeadDim)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5)
      .Int("llama.vocab_size", kVocab)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "qwen2")
      .Strings("tokenizer.ggml.tokens", Vocabulary(options))
      .Ints("tokenizer.ggml.token_type", types)
      .Strings("tokenizer.ggml.merges", {})
      .Int("tokenizer.ggml.bos_token_id", 256)
      .Int("tokenizer.ggml.eos_token_id", 257)
      .Bool("tokenizer.ggml.add_bos_token", options.add_bos);
  if (!options.name.empty()) builder.String("general.name", options.name);

  Weights weights(builder);
  const std::vector<float> embedding = weights.Matrix("token_embd.weight", kVocab, kWidth, 8.0);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    weights.Ones(prefix + "attn_norm.weight", kWidth);
    // Scores with a standard deviation above 1: attention that looks at some rows more than others.
    weights.Matrix(prefix + "attn_q.weight", kHeads * kHeadDim, kWidth, 1.5);
    weights.Matrix(prefix + "attn_k.weight", kKvHeads * kHeadDim, kWidth, 1.5);
    weights.Matrix(prefix + "attn_v.weight", kKvHeads * kHeadDim, kWidth, 3.0);
    weights.Matrix(prefix + "attn_output.weight", kWidth, kHeads * kHeadDim, 1.5 * branch_gain);
    weights.Ones(prefix + "ffn_norm.weight", kWidth);
    weights.Matrix(prefix + "ffn_gate.weight", kFfnWidth, kWidth, 1.0);
    weights.Matrix(prefix + "ffn_up.weight", kFfnWidth, kWidth, 1.0);
    weights.Matrix(prefix + "ffn_down.weight", kWidth, kFfnWidth, branch_gain);
  }
  weights.Ones("output_norm.weight", kWidth);
  if (chain.empty()) {
    weights.Matrix("output.weight", kVocab, kWidth, 2.0);
  } else {
    builder.TensorF32("output.weight", {kWidth, kVocab}, ChainOutput(chain, embedding));
  }
  return builder;
}

}  // namespace

GgufBuilder TinyModel(const TinyModelOptions& options) { return Build({}, options); }

GgufBuilder ChainModel(std::string_view chain) { return Build(chain, {}); }

}  // namespace varve
