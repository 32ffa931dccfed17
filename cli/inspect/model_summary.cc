#include "cli/inspect/model_summary.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "base/pinned_name.h"
#include "base/quoted.h"
#include "cli/inspect/model_lists.h"
#include "cli/report/output.h"
#include "runtime/tokenizer/chat_template.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// Beyond any model; keeps products of a few of these within 64 bits.
constexpr int64_t kMaxSize = int64_t{1} << 31;
constexpr size_t kMaxShownText = 100;

std::optional<int64_t> Size(const GgufFile& file, const std::string& key) {
  Result<int64_t> size = file.GetInt(key, 1, kMaxSize);
  if (!size.ok()) return std::nullopt;
  return *size;
}

std::string Text(const GgufFile& file, const std::string& key) {
  Result<std::string_view> text = file.GetString(key);
  return text.ok() ? Printable(*text, kMaxShownText) : std::string();
}

// A number, or a list with one for each layer.
std::vector<int64_t> KvHeads(const GgufFile& file, const std::string& key,
                             std::optional<int64_t> layers, std::optional<int64_t> heads) {
  if (file.Find(key) == nullptr) return heads ? std::vector{*heads} : std::vector<int64_t>();
  if (Result<int64_t> number = file.GetInt(key, 1, kMaxSize); number.ok()) return {*number};
  Result<std::vector<int32_t>> list = file.GetInts(key);
  if (!list.ok() || !layers || static_cast<int64_t>(list->size()) != *layers) return {};
  if (std::any_of(list->begin(), list->end(), [](int32_t n) { return n < 0; })) return {};
  return {list->begin(), list->end()};
}

void ReadShape(const GgufFile& file, const std::string& prefix, ModelSummary* summary) {
  summary->context = Size(file, prefix + "context_length");
  summary->layers = Size(file, prefix + "block_count");
  summary->width = Size(file, prefix + "embedding_length");
  summary->ffn_width = Size(file, prefix + "feed_forward_length");
  summary->heads = Size(file, prefix + "attention.head_count");
  summary->kv_heads =
      KvHeads(file, prefix + "attention.head_count_kv", summary->layers, summary->heads);
  summary->key_dim = Size(file, prefix + "attention.key_length");
  summary->value_dim = Size(file, prefix + "attention.value_length");
  if (summary->width && summary->heads && *summary->width % *summary->heads == 0) {
    const int64_t head_dim = *summary->width / *summary->heads;
    if (file.Find(prefix + "attention.key_length") == nullptr) summary->key_dim = head_dim;
    if (file.Find(prefix + "attention.value_length") == nullptr) summary->value_dim = head_dim;
  }
}

// Latent attention keeps something else than K and V.
std::optional<uint64_t> KvBytesPerToken(const GgufFile& file, const std::string& prefix,
                                        const ModelSummary& summary) {
  const bool is_latent = file.Find(prefix + "attention.kv_lora_rank") != nullptr;
  if (is_latent || !summary.layers || summary.kv_heads.empty() || !summary.key_dim ||
      !summary.value_dim) {
    return std::nullopt;
  }
  // The file may say anything below 2^31 of each, so the product may not fit.
  const auto row_bytes = static_cast<uint64_t>(*summary.key_dim + *summary.value_dim) * 2;
  uint64_t rows = 0;
  for (const int64_t heads : summary.kv_heads) rows += static_cast<uint64_t>(heads);
  uint64_t bytes = 0;
  if (summary.kv_heads.size() == 1) rows *= static_cast<uint64_t>(*summary.layers);
  if (__builtin_mul_overflow(rows, row_bytes, &bytes)) return std::nullopt;
  return bytes;
}

void CountTensors(const GgufFile& file, ModelSummary* summary) {
  for (const GgufTensor& tensor : file.tensors()) {
    // Fits: the bytes of these values are in the file, and no type has less than half a byte each.
    uint64_t parameters = 1;
    for (const int64_t size : tensor.dims) parameters *= static_cast<uint64_t>(size);
    summary->types.Add(tensor.type, parameters, tensor.data.size());
  }
}

void ReadTokenizer(const GgufFile& file, ModelSummary* summary) {
  summary->tokenizer = Text(file, "tokenizer.ggml.model");
  summary->pre_tokenizer = Text(file, "tokenizer.ggml.pre");
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->type == GgufType::kArray) summary->vocab_size = tokens->count;
  summary->has_chat_template = file.GetString("tokenizer.chat_template").ok();
  const Status runs = ChatTemplate::FromFile(file, {}).status();
  if (summary->has_chat_template) summary->chat_template_error = runs.message();
}

std::string Known(const std::optional<int64_t>& number) {
  return number ? fmt::format("{}", *number) : "?";
}

std::string KvHeadsText(const std::vector<int64_t>& kv_heads) {
  if (kv_heads.empty()) return "?";
  const auto [least, most] = std::minmax_element(kv_heads.begin(), kv_heads.end());
  if (*least == *most) return fmt::format("{}", *least);
  return fmt::format("{} to {}", *least, *most);
}

std::string HeadsText(const ModelSummary& summary) {
  std::string dim = Known(summary.key_dim);
  if (summary.key_dim != summary.value_dim) {
    dim = fmt::format("{} (K) and {} (V)", dim, Known(summary.value_dim));
  }
  return fmt::format("{} on {} KV heads, dim {}", Known(summary.heads),
                     KvHeadsText(summary.kv_heads), dim);
}

std::string TokenizerText(const ModelSummary& summary) {
  if (summary.tokenizer.empty() && !summary.vocab_size) return "none";
  std::string text = summary.tokenizer.empty() ? "?" : summary.tokenizer;
  if (!summary.pre_tokenizer.empty()) text += fmt::format(" (pre {})", summary.pre_tokenizer);
  if (summary.vocab_size) text += fmt::format(", {} tokens", *summary.vocab_size);
  return text;
}

std::string ChatText(const ModelSummary& summary) {
  if (!summary.has_chat_template) return "none";
  if (summary.chat_template_error.empty()) return "a template";
  return fmt::format("a template that cannot be run: {}", summary.chat_template_error);
}

std::string KvText(const ModelSummary& summary) {
  if (!summary.kv_bytes_per_token) return "?";
  const auto bytes = static_cast<double>(*summary.kv_bytes_per_token);
  std::string text = fmt::format("{} per token in f16", HumanBytes(bytes));
  if (summary.context) {
    text +=
        fmt::format(", {} at {} tokens", HumanBytes(bytes * static_cast<double>(*summary.context)),
                    *summary.context);
  }
  return text;
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

ModelSummary SummarizeModel(const GgufFile& file) {
  ModelSummary summary;
  summary.path = file.name();
  summary.version = file.version();
  Result<int64_t> parts = file.GetInt("split.count", 1, kMaxSize);
  if (parts.ok()) summary.parts = *parts;
  summary.file_bytes = file.file_bytes();
  summary.hash = file.ContentHash();
  summary.architecture = Text(file, "general.architecture");
  summary.name = Text(file, "general.name");
  Result<std::string_view> architecture = file.GetString("general.architecture");
  const std::string prefix = architecture.ok() ? std::string(*architecture) + "." : "";
  if (architecture.ok()) {
    ReadShape(file, prefix, &summary);
    summary.kv_bytes_per_token = KvBytesPerToken(file, prefix, summary);
  }
  CountTensors(file, &summary);
  ReadTokenizer(file, &summary);
  return summary;
}

std::string RenderSummary(const ModelSummary& summary, bool colour) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}  {}\n", label, value.empty() ? "?" : value);
  };
  line("file", summary.path);
  line("format", fmt::format("GGUF {}{}", summary.version,
                             summary.parts > 1 ? fmt::format(" in {} parts", summary.parts) : ""));
  line("size", HumanBytes(static_cast<double>(summary.file_bytes)));
  line("hash", HashText(summary.hash));
  line("architecture", summary.architecture);
  line("name", summary.name);
  line("parameters", HumanCount(summary.types.parameters()));
  line("context", Known(summary.context));
  line("layers", fmt::format("{} of width {}, feed-forward {}", Known(summary.layers),
                             Known(summary.width), Known(summary.ffn_width)));
  line("heads", HeadsText(summary));
  line("KV cache", KvText(summary));
  line("tokenizer", TokenizerText(summary));
  line("chat", ChatText(summary));
  const std::string types = summary.types.RenderTable(colour);
  return types.empty() ? text : text + "\n" + types;
}

Json SummaryJson(const ModelSummary& summary) {
  return {{"topic", "model"},
          {"file", summary.path},
          {"gguf_version", summary.version},
          {"parts", summary.parts},
          {"file_bytes", summary.file_bytes},
          {"hash", HashText(summary.hash)},
          {"architecture", summary.architecture},
          {"name", summary.name},
          {"parameters", summary.types.parameters()},
          {"tensor_bytes", summary.types.bytes()},
          {"context", OrNull(summary.context)},
          {"layers", OrNull(summary.layers)},
          {"width", OrNull(summary.width)},
          {"ffn_width", OrNull(summary.ffn_width)},
          {"heads", OrNull(summary.heads)},
          {"kv_heads",
           summary.kv_heads.size() == 1 ? Json(summary.kv_heads[0]) : Json(summary.kv_heads)},
          {"key_dim", OrNull(summary.key_dim)},
          {"value_dim", OrNull(summary.value_dim)},
          {"kv_bytes_per_token_f16", OrNull(summary.kv_bytes_per_token)},
          {"tokenizer", summary.tokenizer},
          {"pre_tokenizer", summary.pre_tokenizer},
          {"vocab_size", OrNull(summary.vocab_size)},
          {"has_chat_template", summary.has_chat_template},
          {"chat_template_error", summary.chat_template_error},
          {"types", summary.types.ToJson()}};
}

}  // namespace varve::cli
