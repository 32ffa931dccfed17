#include "runtime/llama/llama_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/llama/config_reader.h"

namespace varve {
namespace {

// What the cache can hold (CacheShape), and sizes beyond which a number is a lie rather than a
// model: products of two of them stay far below 2^63.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxKvHeads = 1024;
constexpr int64_t kMaxGroup = 64;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kHeadDimStep = 16;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;

// What an architecture fixes that its metadata does not say.
struct Family {
  std::string_view architecture;
  RopeOrder rope_order = RopeOrder::kHalves;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool gemma = false;
  int64_t window = 0;     // LlamaConfig::window and window_period unless the file says otherwise
  int window_period = 1;  // LlamaConfig::window_period unless the file says otherwise
  double local_rope_base = 0;  // of layers with a window; 0: as the others
  int unscaled_layers = 0;     // the size that divides scores by sqrt(width / heads), by its layers
};
constexpr std::array<Family, 6> kFamilies = {{
    {.architecture = "llama", .rope_order = RopeOrder::kInterleaved},
    {.architecture = "mistral", .rope_order = RopeOrder::kInterleaved},
    {.architecture = "qwen2", .qkv_bias = true},
    {.architecture = "qwen3", .qk_norm = true},
    {.architecture = "gemma2",
     .gemma = true,
     .window = 4096,
     .window_period = 2,
     .unscaled_layers = 46},
    {.architecture = "gemma3",
     .qk_norm = true,
     .gemma = true,
     .window_period = 6,
     .local_rope_base = 10000.0,
     .unscaled_layers = 62},
}};

Result<const Family*> FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return Unimplemented(fmt::format("general.architecture {} is not built in; these are: {}",
                                   Quoted(architecture), fmt::join(LlamaArchitectures(), ", ")));
}

Status ReadHeads(const ConfigReader& read, LlamaConfig* config) {
  VARVE_RETURN_IF_ERROR(
      read.Int("attention.head_count", 1, kMaxKvHeads * kMaxGroup, &config->num_heads));
  config->num_kv_heads = config->num_heads;
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.head_count_kv", 1, kMaxKvHeads, &config->num_kv_heads));
  if (config->num_heads % config->num_kv_heads != 0 ||
      config->num_heads / config->num_kv_heads > kMaxGroup) {
    return InvalidArgument(fmt::format(
        "{} {} must be 1 … {} times {} {}", read.Key("attention.head_count"), config->num_heads,
        kMaxGroup, read.Key("attention.head_count_kv"), config->num_kv_heads));
  }

  config->head_dim = config->width / config->num_heads;
  if (!read.Has("attention.key_length") && config->width % config->num_heads != 0) {
    return InvalidArgument(fmt::format("{} {} is not a multiple of {} {}, and there is no {}",
                                       read.Key("embedding_length"), config->width,
                                       read.Key("attention.head_count"), config->num_heads,
                                       read.Key("attention.key_length")));
  }
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.key_length", 1, kMaxHeadDim, &config->head_dim));
  if (config->head_dim > kMaxHeadDim || config->head_dim % kHeadDimStep != 0 ||
      config->head_dim == 0) {
    // Most files have no key_length: the message names what they do have.
    const std::string what =
        read.Has("attention.key_length")
            ? read.Key("attention.key_length")
            : fmt::format("{} {} / {} {} =", read.Key("embedding_length"), config->width,
                          read.Key("attention.head_count"), config->num_heads);
    return InvalidArgument(fmt::format("{} {} must be a multiple of {} up to {}", what,
                                       config->head_dim, kHeadDimStep, kMaxHeadDim));
  }
  int value_dim = config->head_dim;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("attention.value_length", 1, kMaxHeadDim, &value_dim));
  if (value_dim != config->head_dim) {
    return Unimplemented(fmt::format("{} {} != {} {}: not built in",
                                     read.Key("attention.value_length"), value_dim,
                                     read.Key("attention.key_length"), config->head_dim));
  }
  return {};
}

Status ReadVocabSize(const GgufFile& file, const ConfigReader& read, LlamaConfig* config) {
  if (read.Has("vocab_size")) return read.Int("vocab_size", 1, kMaxVocab, &config->vocab_size);
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  int64_t size = 0;
  if (tokens != nullptr && tokens->type == GgufType::kArray) {
    size = static_cast<int64_t>(std::min<uint64_t>(tokens->count, kMaxVocab + 1));
  } else if (embedding != nullptr && embedding->dims.size() == 2) {
    size = embedding->dims[1];
  }
  if (size < 1 || size > kMaxVocab) {
    return InvalidArgument(fmt::format("{} (from the vocabulary) {} not in [1, {}]",
                                       read.Key("vocab_size"), size, kMaxVocab));
  }
  config->vocab_size = static_cast<int>(size);
  return {};
}

// Keys that turn the model into another one than the forward pass computes.
Status RefuseOtherModels(const GgufFile& file, const ConfigReader& read) {
  int64_t experts = 0;
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("expert_count", 0, std::numeric_limits<int32_t>::max(), &experts));
  if (experts > 0) {
    return Unimplemented(fmt::format("{} {}: mixtures of experts are not built in",
                                     read.Key("expert_count"), experts));
  }
  VARVE_ASSIGN_OR_RETURN(const bool causal, file.GetBoolOr(read.Key("attention.causal"), true));
  if (!causal) {
    return Unimplemented(
        fmt::format("{} false: only causal attention is built in", read.Key("attention.causal")));
  }
  return {};
}

// Gemma: scaled embeddings, norms on both sides of a block (files have 1 + w folded in), GELU, soft
// caps, and a window in most layers.
Status ReadGemma(const ConfigReader& read, const Family& family, LlamaConfig* config) {
  config->embedding_scale = std::sqrt(static_cast<float>(config->width));
  config->post_norms = true;
  config->activation = Activation::kGeluTanh;
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("attn_logit_softcapping", 0.0, 1e6, &config->attention_soft_cap));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("final_logit_softcapping", 0.0, 1e6, &config->final_soft_cap));
  // No key says this: only the largest model of each generation does it.
  if (config->num_layers == family.unscaled_layers && !read.Has("attention.scale")) {
    config->attention_scale =
        1.0f / std::sqrt(static_cast<float>(config->width) / static_cast<float>(config->num_heads));
  }
  return {};
}

Status ReadWindow(const ConfigReader& read, const Family& family, LlamaConfig* config) {
  config->window = family.window;
  if (read.Has("attention.sliding_window") || family.local_rope_base > 0) {
    VARVE_RETURN_IF_ERROR(read.Int("attention.sliding_window", 0, kMaxContext, &config->window));
  }
  config->window_period = family.window_period;
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.sliding_window_pattern", 1, kMaxLayers, &config->window_period));
  if (family.local_rope_base > 0) {
    RopeConfig& local = config->local_rope.emplace();
    local.order = config->rope.order;
    local.dims = config->rope.dims;
    local.base = family.local_rope_base;
    VARVE_RETURN_IF_ERROR(
        read.OptionalFloat("rope.freq_base_swa", kMinRopeBase, kMaxRopeBase, &local.base));
  }
  return {};
}

}  // namespace

std::span<const std::string_view> LlamaArchitectures() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kFamilies.size()> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = kFamilies[i].architecture;
    return names;
  }();
  return kNames;
}

Result<LlamaConfig> ReadLlamaConfig(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(const std::string_view architecture,
                         file.GetString("general.architecture"));
  VARVE_ASSIGN_OR_RETURN(const auto family, FindFamily(architecture));
  VARVE_ASSIGN_OR_RETURN(const std::string_view name, file.GetStringOr("general.name", ""));

  LlamaConfig config;
  config.architecture = architecture;
  config.name = name;
  config.rope.order = family->rope_order;
  config.qk_norm = family->qk_norm;
  config.qkv_bias = family->qkv_bias || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;

  const ConfigReader read(file, architecture);
  VARVE_RETURN_IF_ERROR(RefuseOtherModels(file, read));
  VARVE_RETURN_IF_ERROR(read.Int("block_count", 1, kMaxLayers, &config.num_layers));
  VARVE_RETURN_IF_ERROR(read.Int("embedding_length", 1, kMaxWidth, &config.width));
  VARVE_RETURN_IF_ERROR(read.Int("feed_forward_length", 1, kMaxWidth, &config.ffn_width));
  VARVE_RETURN_IF_ERROR(read.Int("context_length", 1, kMaxContext, &config.context));
  VARVE_RETURN_IF_ERROR(
      read.Float("attention.layer_norm_rms_epsilon", 1e-12, 1.0, &config.norm_epsilon));
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("attention.scale", 0.0, 1e3, &config.attention_scale));
  VARVE_RETURN_IF_ERROR(ReadHeads(read, &config));
  VARVE_RETURN_IF_ERROR(ReadVocabSize(file, read, &config));
  VARVE_RETURN_IF_ERROR(ReadRope(read, &config));
  VARVE_RETURN_IF_ERROR(ReadWindow(read, *family, &config));
  if (family->gemma) VARVE_RETURN_IF_ERROR(ReadGemma(read, *family, &config));
  return config;
}

}  // namespace varve
