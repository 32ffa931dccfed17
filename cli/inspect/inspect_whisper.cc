#include "cli/inspect/inspect_whisper.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/inspect/type_shares.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

WhisperFileKind KindOfFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return WhisperFileKind::kNone;
  std::array<std::byte, 32> begin = {};
  const size_t got = std::fread(begin.data(), 1, begin.size(), file.get());
  return WhisperKindOf(std::span(begin).first(got));
}

TypeShares SharesOf(const WhisperTensors& model) {
  TypeShares shares;
  for (const auto& [name, tensor] : model.tensors) {
    shares.Add(tensor.type, static_cast<uint64_t>(tensor.values()), tensor.bytes());
  }
  return shares;
}

// K and V of all decoder layers in f16, for one position.
double KvRowBytes(const WhisperConfig& config) {
  return 2.0 * 2.0 * config.text_layers * config.text_state;
}

uint64_t FileBytes(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

std::string LanguagesText(const WhisperConfig& config) {
  return config.multilingual() ? fmt::format("{}", config.num_languages()) : "English alone";
}

TextTable WhisperTensorTable(const WhisperTensors& model) {
  TextTable table({"tensor", "type", ">rows × columns", ">bytes"});
  for (const auto& [name, tensor] : model.tensors) {
    table.AddRow({name, InfoOf(tensor.type).name, fmt::format("{}", fmt::join(tensor.dims, " × ")),
                  HumanBytes(static_cast<double>(tensor.bytes()))});
  }
  return table;
}

TextTable WhisperSizeTable(const WhisperConfig& config) {
  TextTable table({"key", ">value"});
  for (const WhisperConfigField& field : WhisperConfigFields()) {
    table.AddRow({field.name, fmt::format("{}", config.*field.value)});
  }
  return table;
}

Json WhisperJson(const InspectModelOptions& options, const WhisperTensors& model) {
  const WhisperConfig& config = model.config;
  const TypeShares shares = SharesOf(model);
  Json row = {{"topic", "model"},
              {"file", options.path},
              {"format", WhisperFileKindName(KindOfFile(options.path))},
              {"file_bytes", FileBytes(options.path)},
              {"architecture", "whisper"},
              {"name", WhisperModelName(config)},
              {"parameters", shares.parameters()},
              {"tensor_bytes", shares.bytes()}};
  for (const WhisperConfigField& field : WhisperConfigFields()) {
    row[field.name] = config.*field.value;
  }
  row["languages"] = config.num_languages();
  row["own_tokens"] = model.tokens.size();
  row["self_kv_bytes_per_token_f16"] = KvRowBytes(config);
  row["cross_kv_bytes_per_window_f16"] = KvRowBytes(config) * config.audio_ctx;
  row["types"] = shares.ToJson();
  if (options.tensors) {
    Json tensors = Json::array();
    for (const auto& [name, tensor] : model.tensors) {
      tensors.push_back({{"name", name},
                         {"dims", tensor.dims},
                         {"type", InfoOf(tensor.type).name},
                         {"bytes", tensor.bytes()}});
    }
    row["tensors"] = std::move(tensors);
  }
  return row;
}

}  // namespace

bool IsWhisperFile(const std::string& path) { return KindOfFile(path) != WhisperFileKind::kNone; }

std::string RenderWhisper(const std::string& path, const WhisperTensors& model, bool colour) {
  const WhisperConfig& config = model.config;
  const TypeShares shares = SharesOf(model);
  const std::string name = WhisperModelName(config);
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}  {}\n", label, value);
  };
  line("file", path);
  line("format",
       fmt::format("{}, a Whisper model (speech to text)", WhisperFileKindName(KindOfFile(path))));
  line("size", HumanBytes(static_cast<double>(FileBytes(path))));
  line("name", name.empty() ? "none of OpenAI's" : name);
  line("parameters", HumanCount(shares.parameters()));
  line("layers", fmt::format("{} of the encoder, {} of the decoder, width {}", config.audio_layers,
                             config.text_layers, config.text_state));
  line("heads", fmt::format("{}, dim {}", config.text_heads, config.text_head_dim()));
  line("sound", fmt::format("{} mels, {} positions a window", config.mels, config.audio_ctx));
  line("text", fmt::format("{} positions, {} ids, {}", config.text_ctx, config.vocab,
                           model.tokens.empty()
                               ? std::string("tokens of the program")
                               : fmt::format("{} tokens of its own", model.tokens.size())));
  line("languages", LanguagesText(config));
  line("KV cache", fmt::format("in f16 {} per token (self), {} per window (cross)",
                               HumanBytes(KvRowBytes(config)),
                               HumanBytes(KvRowBytes(config) * config.audio_ctx)));
  return text + "\n" + shares.RenderTable(colour);
}

Status InspectWhisper(const InspectModelOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const WhisperTensors model, ReadWhisperFile(options.path));
  if (options.json != "-") {
    const std::string text = RenderWhisper(options.path, model, UseColour(stdout));
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (options.metadata) {
      fmt::print("\n");
      WhisperSizeTable(model.config).Print(stdout);
    }
    if (options.tensors) {
      fmt::print("\n");
      WhisperTensorTable(model).Print(stdout);
    }
  }
  if (options.json.empty()) return Status();
  return WriteJson(options.json, "inspect", Json::array({WhisperJson(options, model)}));
}

}  // namespace varve::cli
