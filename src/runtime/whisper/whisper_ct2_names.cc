#include "runtime/whisper/whisper_ct2_names.h"

#include <fmt/format.h>

namespace varve {
namespace {

struct Renamed {
  std::string_view ours, theirs;
  int part = 0, parts = 1;
};
// Of a block, ".weight" and ".bias" follow; norms have "gamma" and "beta" instead.
constexpr Renamed kBlockNames[] = {
    {"attn.query", "self_attention/linear_0", 0, 3},
    {"attn.key", "self_attention/linear_0", 1, 3},
    {"attn.value", "self_attention/linear_0", 2, 3},
    {"attn.out", "self_attention/linear_1"},
    {"attn_ln", "self_attention/layer_norm"},
    {"cross_attn.query", "attention/linear_0"},
    {"cross_attn.key", "attention/linear_1", 0, 2},
    {"cross_attn.value", "attention/linear_1", 1, 2},
    {"cross_attn.out", "attention/linear_2"},
    {"cross_attn_ln", "attention/layer_norm"},
    {"mlp.0", "ffn/linear_0"},
    {"mlp.2", "ffn/linear_1"},
    {"mlp_ln", "ffn/layer_norm"},
};
constexpr Renamed kGlobalNames[] = {
    {"encoder.positional_embedding", "encoder/position_encodings/encodings"},
    {"decoder.positional_embedding", "decoder/position_encodings/encodings"},
    {"decoder.token_embedding.weight", "decoder/embeddings/weight"},
    {"encoder.conv1.weight", "encoder/conv1/weight"},
    {"encoder.conv1.bias", "encoder/conv1/bias"},
    {"encoder.conv2.weight", "encoder/conv2/weight"},
    {"encoder.conv2.bias", "encoder/conv2/bias"},
    {"encoder.ln_post.weight", "encoder/layer_norm/gamma"},
    {"encoder.ln_post.bias", "encoder/layer_norm/beta"},
    {"decoder.ln.weight", "decoder/layer_norm/gamma"},
    {"decoder.ln.bias", "decoder/layer_norm/beta"},
};
}  // namespace

Ct2Source Ct2SourceOf(std::string_view tensor) {
  for (const Renamed& name : kGlobalNames) {
    if (tensor == name.ours) return {std::string(name.theirs)};
  }
  // What is left is STACK.blocks.LAYER.REST.KIND, as WhisperTensorShapes makes it.
  constexpr std::string_view kBlocks = ".blocks.";
  const size_t at = tensor.find(kBlocks);
  const std::string_view stack = tensor.substr(0, at);
  const std::string_view inner = tensor.substr(at + kBlocks.size());
  const size_t dot = inner.find('.'), last = inner.rfind('.');
  const std::string_view rest = inner.substr(dot + 1, last - dot - 1);
  const bool is_weight = inner.substr(last + 1) == "weight";
  const char* kind = is_weight ? "weight" : "bias";
  if (rest.ends_with("_ln")) kind = is_weight ? "gamma" : "beta";
  for (const Renamed& name : kBlockNames) {
    if (rest != name.ours) continue;
    return {fmt::format("{}/layer_{}/{}/{}", stack, inner.substr(0, dot), name.theirs, kind),
            name.part, name.parts};
  }
  return {};
}

}  // namespace varve
