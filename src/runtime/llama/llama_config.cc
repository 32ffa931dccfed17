#include "runtime/llama/llama_config.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/half.h"

namespace varve {
namespace {

// What the cache can hold (CacheShape), and sizes beyond which a number is a lie rather than a
// model: products of two of them stay far below 2^63.
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kMostKvHeads = 1024;
constexpr int64_t kMostGroup = 64;
constexpr int64_t kMostHeadDim = 512;
constexpr int64_t kHeadDimStep = 16;
constexpr int64_t kMostWidth = int64_t{1} << 20;
constexpr int64_t kMostVocab = int64_t{1} << 24;
constexpr int64_t kMostContext = int64_t{1} << 40;

// What an architecture fixes that its metadata does not say.
struct Family {
  std::string_view architecture;
  RopeOrder rope_order;
  bool qkv_bias;
  bool qk_norm;
};
constexpr std::array<Family, 4> kFamilies = {{
    {"llama", RopeOrder::kInterleaved, false, false},
    {"mistral", RopeOrder::kInterleaved, false, false},
    {"qwen2", RopeOrder::kHalves, true, false},
    {"qwen3", RopeOrder::kHalves, false, true},
}};

Result<const Family*> FindFamily(std::string_view architecture) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return Unimplemented(fmt::format("general.architecture \"{}\" is not built in; these are: {}",
                                   architecture, known));
}

// The keys "{architecture}.…" of one file.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(fmt::format("{}.", architecture)) {}

  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  // A number, or an array with the same number for every layer.
  template <typename T>
  Status Int(std::string_view name, int64_t min, int64_t max, T* out) const {
    const std::string key = Key(name);
    const GgufValue* value = file_.Find(key);
    if (value != nullptr && value->type == GgufType::kArray) return Array(key, min, max, out);
    const Result<int64_t> number = file_.GetInt(key, min, max);
    if (!number.ok()) return number.status();
    *out = static_cast<T>(*number);
    return {};
  }
  template <typename T>
  Status OptionalInt(std::string_view name, int64_t min, int64_t max, T* out) const {
    return Has(name) ? Int(name, min, max, out) : Status();
  }

  // A finite number in [min, max].
  template <typename T>
  Status Float(std::string_view name, double min, double max, T* out) const {
    const std::string key = Key(name);
    const Result<double> number = file_.GetFloat(key);
    if (!number.ok()) return number.status();
    if (!(*number >= min && *number <= max)) {
      return InvalidArgument(fmt::format("{} {} not in [{}, {}]", key, *number, min, max));
    }
    *out = static_cast<T>(*number);
    return {};
  }
  template <typename T>
  Status OptionalFloat(std::string_view name, double min, double max, T* out) const {
    return Has(name) ? Float(name, min, max, out) : Status();
  }

  // A key that would change the result if it were anything but `expected`.
  Status OnlyFloat(std::string_view name, double expected) const {
    double value = expected;
    VARVE_RETURN_IF_ERROR(OptionalFloat(name, std::numeric_limits<double>::lowest(),
                                        std::numeric_limits<double>::max(), &value));
    if (value == expected) return {};
    return Unimplemented(fmt::format("{} {}: only {} is built in", Key(name), value, expected));
  }

 private:
  template <typename T>
  Status Array(const std::string& key, int64_t min, int64_t max, T* out) const {
    const Result<std::vector<int32_t>> numbers = file_.GetInts(key);
    if (!numbers.ok()) return numbers.status();
    if (numbers->empty()) return InvalidArgument(fmt::format("{}: an empty array", key));
    const int32_t first = numbers->front();
    for (size_t i = 0; i < numbers->size(); ++i) {
      if ((*numbers)[i] != first) {
        return Unimplemented(fmt::format("{}[{}] {} != [0] {}: layers that differ are not built in",
                                         key, i, (*numbers)[i], first));
      }
    }
    if (first < min || first > max) {
      return InvalidArgument(fmt::format("{}[0] {} not in [{}, {}]", key, first, min, max));
    }
    *out = static_cast<T>(first);
    return {};
  }

  const GgufFile& file_;
  std::string prefix_;
};

Status ReadHeads(const ConfigReader& read, LlamaConfig* config) {
  VARVE_RETURN_IF_ERROR(
      read.Int("attention.head_count", 1, kMostKvHeads * kMostGroup, &config->num_heads));
  config->num_kv_heads = config->num_heads;
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.head_count_kv", 1, kMostKvHeads, &config->num_kv_heads));
  if (config->num_heads % config->num_kv_heads != 0 ||
      config->num_heads / config->num_kv_heads > kMostGroup) {
    return InvalidArgument(fmt::format(
        "{} {} must be 1 … {} times {} {}", read.Key("attention.head_count"), config->num_heads,
        kMostGroup, read.Key("attention.head_count_kv"), config->num_kv_heads));
  }

  config->head_dim = config->width / config->num_heads;
  if (!read.Has("attention.key_length") && config->width % config->num_heads != 0) {
    return InvalidArgument(fmt::format("{} {} is not a multiple of {} {}, and there is no {}",
                                       read.Key("embedding_length"), config->width,
                                       read.Key("attention.head_count"), config->num_heads,
                                       read.Key("attention.key_length")));
  }
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.key_length", 1, kMostHeadDim, &config->head_dim));
  if (config->head_dim > kMostHeadDim || config->head_dim % kHeadDimStep != 0 ||
      config->head_dim == 0) {
    return InvalidArgument(fmt::format("{} {} must be a multiple of {} up to {}",
                                       read.Key("attention.key_length"), config->head_dim,
                                       kHeadDimStep, kMostHeadDim));
  }
  int value_dim = config->head_dim;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("attention.value_length", 1, kMostHeadDim, &value_dim));
  if (value_dim != config->head_dim) {
    return Unimplemented(fmt::format("{} {} != {} {}: not built in",
                                     read.Key("attention.value_length"), value_dim,
                                     read.Key("attention.key_length"), config->head_dim));
  }
  return {};
}

Status ReadYarn(const ConfigReader& read, const LlamaConfig& config, RopeConfig* rope) {
  rope->scaling = RopeScaling::kYarn;
  rope->original_context = config.context;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("rope.scaling.original_context_length", 1, kMostContext,
                                         &rope->original_context));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.yarn_beta_fast", 1e-6, 1e9, &rope->yarn_beta_fast));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.yarn_beta_slow", 1e-6, 1e9, &rope->yarn_beta_slow));
  VARVE_RETURN_IF_ERROR(read.OnlyFloat("rope.scaling.yarn_ext_factor", 1.0));
  VARVE_RETURN_IF_ERROR(read.OnlyFloat("rope.scaling.yarn_log_multiplier", 0.0));
  double given = 1.0;
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scaling.yarn_attn_factor", 1e-3, 1e3, &given));
  rope->attention_factor *= given;
  if (rope->factor > 1.0) rope->attention_factor *= 0.1 * std::log(rope->factor) + 1.0;
  return {};
}

// rope_freqs.weight: what each frequency is divided by, made by the converter from the published
// Llama-3 rule.
Status ReadDivisors(const GgufFile& file, RopeConfig* rope) {
  constexpr std::string_view kName = "rope_freqs.weight";
  const GgufTensor* tensor = file.FindTensor(kName);
  if (tensor == nullptr) return {};
  const int64_t count = rope->dims / 2;
  const Result<WeightMatrix> stored = file.GetMatrix(kName, 1, count);
  if (!stored.ok()) return stored.status();
  if (stored->type != WeightType::kF32) {
    return InvalidArgument(
        fmt::format("tensor {}: type {}, expected F32", kName, InfoOf(stored->type).name));
  }
  rope->scaling = RopeScaling::kLlama3;
  rope->frequency_divisors.resize(count);
  ActiveWeightKernels().decode[static_cast<int>(WeightType::kF32)](stored->data, count,
                                                                   rope->frequency_divisors.data());
  for (int64_t i = 0; i < count; ++i) {
    const float divisor = rope->frequency_divisors[i];
    if (!(divisor > 0.0f) || !std::isfinite(divisor)) {
      return InvalidArgument(
          fmt::format("tensor {}[{}] {}: must be finite and > 0", kName, i, divisor));
    }
  }
  return {};
}

Status ReadRope(const GgufFile& file, const ConfigReader& read, LlamaConfig* config) {
  RopeConfig& rope = config->rope;
  rope.dims = config->head_dim;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("rope.dimension_count", 2, config->head_dim, &rope.dims));
  if (rope.dims % 2 != 0) {
    return InvalidArgument(
        fmt::format("{} {} must be even", read.Key("rope.dimension_count"), rope.dims));
  }
  // At 1 the logarithm of YaRN's ramp vanishes.
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.freq_base", 1.000001, 1e12, &rope.base));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.attn_factor", 1e-3, 1e3, &rope.attention_factor));
  const Result<std::string_view> type =
      file.GetStringOr(read.Key("rope.scaling.type"), "linear");  // as the format's readers do
  if (!type.ok()) return type.status();
  if (*type == "none") return ReadDivisors(file, &rope);
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scale_linear", 1e-3, 1e6, &rope.factor));
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scaling.factor", 1e-3, 1e6, &rope.factor));
  if (*type == "yarn") {
    VARVE_RETURN_IF_ERROR(ReadYarn(read, *config, &rope));
  } else if (*type == "linear") {
    if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
  } else {
    return Unimplemented(fmt::format("{} \"{}\" is not built in; these are: none, linear, yarn",
                                     read.Key("rope.scaling.type"), *type));
  }
  if (rope.scaling != RopeScaling::kNone && file.FindTensor("rope_freqs.weight") != nullptr) {
    return Unimplemented(fmt::format("{} \"{}\" together with rope_freqs.weight is not built in",
                                     read.Key("rope.scaling.type"), *type));
  }
  return ReadDivisors(file, &rope);
}

Status ReadVocabSize(const GgufFile& file, const ConfigReader& read, LlamaConfig* config) {
  if (read.Has("vocab_size")) return read.Int("vocab_size", 1, kMostVocab, &config->vocab_size);
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  int64_t size = 0;
  if (tokens != nullptr && tokens->type == GgufType::kArray) {
    size = static_cast<int64_t>(std::min<uint64_t>(tokens->count, kMostVocab + 1));
  } else if (embedding != nullptr && embedding->dims.size() == 2) {
    size = embedding->dims[1];
  }
  if (size < 1 || size > kMostVocab) {
    return InvalidArgument(fmt::format("{} (from the vocabulary) {} not in [1, {}]",
                                       read.Key("vocab_size"), size, kMostVocab));
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
  const Result<bool> causal = file.GetBoolOr(read.Key("attention.causal"), true);
  if (!causal.ok()) return causal.status();
  if (!*causal) {
    return Unimplemented(
        fmt::format("{} false: only causal attention is built in", read.Key("attention.causal")));
  }
  if (read.Has("attention.sliding_window_pattern")) {
    return Unimplemented(fmt::format("{}: layers that differ are not built in",
                                     read.Key("attention.sliding_window_pattern")));
  }
  return {};
}

}  // namespace

Result<LlamaConfig> ReadLlamaConfig(const GgufFile& file) {
  const Result<std::string_view> architecture = file.GetString("general.architecture");
  if (!architecture.ok()) return architecture.status();
  const Result<const Family*> family = FindFamily(*architecture);
  if (!family.ok()) return family.status();
  const Result<std::string_view> name = file.GetStringOr("general.name", "");
  if (!name.ok()) return name.status();

  LlamaConfig config;
  config.architecture = *architecture;
  config.name = *name;
  config.rope.order = (*family)->rope_order;
  config.qk_norm = (*family)->qk_norm;
  config.qkv_bias = (*family)->qkv_bias || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;

  const ConfigReader read(file, *architecture);
  VARVE_RETURN_IF_ERROR(RefuseOtherModels(file, read));
  VARVE_RETURN_IF_ERROR(read.Int("block_count", 1, kMostLayers, &config.num_layers));
  VARVE_RETURN_IF_ERROR(read.Int("embedding_length", 1, kMostWidth, &config.width));
  VARVE_RETURN_IF_ERROR(read.Int("feed_forward_length", 1, kMostWidth, &config.ffn_width));
  VARVE_RETURN_IF_ERROR(read.Int("context_length", 1, kMostContext, &config.context));
  VARVE_RETURN_IF_ERROR(
      read.Float("attention.layer_norm_rms_epsilon", 1e-12, 1.0, &config.norm_epsilon));
  VARVE_RETURN_IF_ERROR(
      read.OptionalInt("attention.sliding_window", 0, kMostContext, &config.window));
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("attention.scale", 0.0, 1e3, &config.attention_scale));
  VARVE_RETURN_IF_ERROR(ReadHeads(read, &config));
  VARVE_RETURN_IF_ERROR(ReadVocabSize(file, read, &config));
  VARVE_RETURN_IF_ERROR(ReadRope(file, read, &config));
  return config;
}

}  // namespace varve
