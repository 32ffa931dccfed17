#include "runtime/llama/llama_weights.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"

namespace varve {
namespace {

bool IsFloat(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16;
}

// A norm or a bias, copied.
Status ReadVector(const GgufFile& file, const std::string& name, int64_t size,
                  std::vector<float>* out) {
  VARVE_ASSIGN_OR_RETURN(const WeightMatrix stored, file.GetMatrix(name, 1, size));
  if (!IsFloat(stored.type)) {
    return InvalidArgument(fmt::format("tensor {}: type {}, expected F32, F16 or BF16", name,
                                       InfoOf(stored.type).name));
  }
  out->resize(size);
  ActiveWeightKernels().decode[static_cast<int>(stored.type)](stored.data, size, out->data());
  return {};
}

Status ReadMatrix(const GgufFile& file, const std::string& name, int64_t rows, int64_t cols,
                  WeightMatrix* out) {
  VARVE_ASSIGN_OR_RETURN(const WeightMatrix stored, file.GetMatrix(name, rows, cols));
  *out = stored;
  return {};
}

Status ReadAttention(const GgufFile& file, const LlamaConfig& config, const std::string& prefix,
                     LlamaLayer* layer) {
  const int64_t width = config.width;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  VARVE_RETURN_IF_ERROR(
      ReadVector(file, prefix + "attn_norm.weight", width, &layer->attention_norm));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "attn_q.weight", q, width, &layer->query));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "attn_k.weight", kv, width, &layer->key));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "attn_v.weight", kv, width, &layer->value));
  VARVE_RETURN_IF_ERROR(
      ReadMatrix(file, prefix + "attn_output.weight", width, q, &layer->attention_output));
  if (config.qkv_bias) {
    VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "attn_q.bias", q, &layer->query_bias));
    VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "attn_k.bias", kv, &layer->key_bias));
    VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "attn_v.bias", kv, &layer->value_bias));
  }
  if (file.FindTensor(prefix + "attn_output.bias") != nullptr) {
    VARVE_RETURN_IF_ERROR(
        ReadVector(file, prefix + "attn_output.bias", width, &layer->output_bias));
  }
  if (config.qk_norm) {
    const int64_t dim = config.head_dim;
    VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "attn_q_norm.weight", dim, &layer->query_norm));
    VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "attn_k_norm.weight", dim, &layer->key_norm));
  }
  return {};
}

Status ReadFeedForward(const GgufFile& file, const LlamaConfig& config, const std::string& prefix,
                       LlamaLayer* layer) {
  const int64_t width = config.width;
  const int64_t ffn = config.ffn_width;
  VARVE_RETURN_IF_ERROR(ReadVector(file, prefix + "ffn_norm.weight", width, &layer->ffn_norm));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "ffn_gate.weight", ffn, width, &layer->ffn_gate));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "ffn_up.weight", ffn, width, &layer->ffn_up));
  VARVE_RETURN_IF_ERROR(ReadMatrix(file, prefix + "ffn_down.weight", width, ffn, &layer->ffn_down));
  if (!config.post_norms) return {};
  VARVE_RETURN_IF_ERROR(
      ReadVector(file, prefix + "post_attention_norm.weight", width, &layer->attention_post_norm));
  return ReadVector(file, prefix + "post_ffw_norm.weight", width, &layer->ffn_post_norm);
}

// What follows "blk.N." in the tensors that ReadAttention and ReadFeedForward take.
bool UsedInLayer(const LlamaConfig& config, std::string_view name) {
  constexpr std::array<std::string_view, 10> kAlways = {
      "attn_norm.weight",   "attn_q.weight",    "attn_k.weight",   "attn_v.weight",
      "attn_output.weight", "attn_output.bias", "ffn_norm.weight", "ffn_gate.weight",
      "ffn_up.weight",      "ffn_down.weight"};
  constexpr std::array<std::string_view, 3> kBiases = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
  constexpr std::array<std::string_view, 2> kHeadNorms = {"attn_q_norm.weight",
                                                          "attn_k_norm.weight"};
  constexpr std::array<std::string_view, 2> kPostNorms = {"post_attention_norm.weight",
                                                          "post_ffw_norm.weight"};
  const auto in = [name](const auto& names) {
    return std::ranges::find(names, name) != names.end();
  };
  return in(kAlways) || (config.qkv_bias && in(kBiases)) || (config.qk_norm && in(kHeadNorms)) ||
         (config.post_norms && in(kPostNorms));
}

// Old converters stored the rotary frequencies that the metadata gives anyway.
bool IsRedundant(std::string_view name) {
  return name.ends_with("attn_rot_embd.weight") || name.ends_with("rotary_emb.inv_freq");
}

Status RefuseUnusedTensors(const GgufFile& file, const LlamaConfig& config) {
  constexpr std::array<std::string_view, 4> kOutside = {"token_embd.weight", "output_norm.weight",
                                                        "output.weight", "rope_freqs.weight"};
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    if (std::ranges::find(kOutside, name) != kOutside.end() || IsRedundant(name)) continue;
    const size_t dot = name.starts_with("blk.") ? name.find('.', 4) : std::string_view::npos;
    if (dot != std::string_view::npos && UsedInLayer(config, name.substr(dot + 1))) {
      // Its layer exists: a number without sign or leading zeros below num_layers.
      const std::string_view digits = name.substr(4, dot - 4);
      int64_t layer = 0;
      bool number = !digits.empty() && digits.size() <= 4;
      for (char c : digits) {
        number = number && c >= '0' && c <= '9';
        layer = layer * 10 + (c - '0');
        if (!number) break;
      }
      if (number && layer < config.num_layers && std::to_string(layer) == digits) continue;
      return InvalidArgument(
          fmt::format("tensor {}: the model has layers 0 … {} ({}.block_count {})", Quoted(name),
                      config.num_layers - 1, config.architecture, config.num_layers));
    }
    return Unimplemented(
        fmt::format("tensor {} is no part of architecture \"{}\" as it is built in", Quoted(name),
                    config.architecture));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<LlamaWeights>> LoadLlamaWeights(std::shared_ptr<const GgufFile> file,
                                                       const LlamaConfig& config) {
  auto weights = std::make_unique<LlamaWeights>();
  VARVE_RETURN_IF_ERROR(RefuseUnusedTensors(*file, config));
  VARVE_RETURN_IF_ERROR(ReadMatrix(*file, "token_embd.weight", config.vocab_size, config.width,
                                   &weights->token_embedding));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LlamaLayer& layer = weights->layers.emplace_back();
    VARVE_RETURN_IF_ERROR(ReadAttention(*file, config, prefix, &layer));
    VARVE_RETURN_IF_ERROR(ReadFeedForward(*file, config, prefix, &layer));
  }
  VARVE_RETURN_IF_ERROR(
      ReadVector(*file, "output_norm.weight", config.width, &weights->output_norm));
  weights->output = weights->token_embedding;
  if (!config.tied_embeddings) {
    VARVE_RETURN_IF_ERROR(
        ReadMatrix(*file, "output.weight", config.vocab_size, config.width, &weights->output));
  }
  weights->file = std::move(file);
  return weights;
}

}  // namespace varve
