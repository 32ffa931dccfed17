#include "cli/model_argument.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/pinned_name.h"
#include "cli/available_memory.h"
#include "cli/models/found_models.h"
#include "runtime/embedded_model.h"
#include "runtime/kernels/linear.h"
#include "runtime/model/open_model.h"

namespace varve::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

Result<std::shared_ptr<const GgufFile>> OpenEmbeddedModel() {
  const std::span<const std::byte> bytes = EmbeddedModel();
  if (bytes.empty()) {
    return FailedPrecondition("this build has no embedded model; name a GGUF file with -m");
  }
  return GgufFile::FromMemory(bytes, "the embedded model");
}

CLI::Validator ModelValidator(ModelKind kind) {
  const auto resolve = [kind](std::string& value) {
    if (value.empty()) {
      return std::string(kind == ModelKind::kText ? "empty; leave it out for the embedded model"
                                                  : "empty");
    }
    Result<PinnedName> pinned = ParsePinnedName(value);
    if (!pinned.ok()) return pinned.status().message();
    Result<std::string> resolved = ResolveModel(pinned->name, kind);
    if (!resolved.ok()) return resolved.status().message();
    value = *std::move(resolved);
    if (pinned->hash) value += "#" + HashText(*pinned->hash);
    return std::string();
  };
  return CLI::Validator(resolve, "", "model");
}

}  // namespace

CLI::Option* AddModelOption(CLI::App& command, std::string& path) {
  CLI::Option* model =
      command
          .add_option(
              "-m,--model", path,
              "GGUF file, or a name that `varve models` lists (default: the embedded model)")
          ->type_name("FILE|NAME")
          ->transform(ModelValidator(ModelKind::kText));
  // Callbacks run in the order in which options are added: the path is there.
  command
      .add_option_function<std::string>(
          "--expect-hash",
          [&path](const std::string& text) {
            Result<uint64_t> hash = ParseHash(text);
            if (!hash.ok()) throw CLI::ValidationError("--expect-hash", hash.status().message());
            path += "#" + HashText(*hash);
          },
          "Refuse a model whose hash is another; `varve inspect` prints it. As -m FILE#HASH")
      ->type_name("xxh3:HEX");
  return model;
}

CLI::Option* AddSpeechModelOption(CLI::App& command, std::string& path, const std::string& option) {
  return command
      .add_option(option, path,
                  "Whisper file (ggml, .pt or model.bin), or a name that `varve models` lists")
      ->required(option.starts_with("-m"))
      ->type_name("FILE|NAME")
      ->transform(ModelValidator(ModelKind::kSpeech));
}

Result<LoadedModel> LoadModel(const std::string& path) {
  LoadedModel loaded;
  VARVE_ASSIGN_OR_RETURN(const PinnedName pinned, ParsePinnedName(path));
  const bool is_embedded = pinned.name.empty();
  VARVE_ASSIGN_OR_RETURN(loaded.file, is_embedded ? OpenEmbeddedModel() : GgufFile::Open(path));
  loaded.name =
      is_embedded ? loaded.file->name() : std::filesystem::path(pinned.name).filename().string();
  if (is_embedded && pinned.hash) {
    const PinnedName embedded{loaded.name, pinned.hash};
    VARVE_RETURN_IF_ERROR(embedded.Check(loaded.file->ContentHash()));
  }
  VARVE_ASSIGN_OR_RETURN(loaded.model, LoadDecoderModel(loaded.file));
  VARVE_ASSIGN_OR_RETURN(loaded.tokenizer, loaded.model->MakeTokenizer());
  return loaded;
}

CLI::Validator PrecisionValidator(bool with_auto) {
  std::vector<std::string> choices = {"f32", "i16", "bf16"};
  if (with_auto) choices.insert(choices.begin(), "auto");
  const CLI::IsMember is_known(choices);
  const auto check = [is_known](const std::string& text) {
    std::string error = is_known(text);
    const std::optional<ProductPrecision> precision = FindPrecision(text);
    if (error.empty() && precision) error = CheckPrecision(*precision).message();
    return error;
  };
  return CLI::Validator(check, is_known.get_description());
}

void AddRepackOption(CLI::App& command, std::string& when) {
  command
      .add_option("--repack", when,
                  "A second copy of 4- to 6-bit weights, in the order in which decoding reads them "
                  "fastest; auto: where it gains and takes at most a quarter of the free memory")
      ->type_name("auto|on|off")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

Status RepackModel(const std::string& when, Executor& executor,
                   std::shared_ptr<const DecoderModel>& model) {
  const uint64_t bytes = when == "off" ? 0 : model->RepackBytes();
  if (bytes == 0 || (when == "auto" && bytes > UsableBytes() / 4)) return Status();
  VARVE_RETURN_IF_ERROR(CheckMemory("--repack on: the second copy of the weights", bytes));
  VARVE_ASSIGN_OR_RETURN(model, model->Repack(executor));
  return Status();
}

void AddDeviceOption(CLI::App& command, std::string& device) {
  command
      .add_option("--device", device,
                  "Where the model computes and the cache lives: cpu, or cuda, a GPU of NVIDIA's. "
                  "There products have f16 inputs (bf16 where the weights are), and --precision "
                  "and --repack mean nothing")
      ->type_name("cpu|cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

Status PlaceModel(const std::string& device, Executor& executor,
                  std::shared_ptr<const DecoderModel>& model) {
  if (device != "cuda") return Status();
  Result<std::shared_ptr<const DecoderModel>> placed = model->PlaceOnGpu(0, executor);
  if (!placed.ok()) {
    return Status(placed.status().code(),
                  fmt::format("--device cuda: {}", placed.status().message()));
  }
  model = std::move(*placed);
  return Status();
}

Result<std::string> ReadTextFile(const std::string& path) {
  const std::string name = path == "-" ? "stdin" : fmt::format("\"{}\"", path);
  const auto fail = [&](const char* what) {
    const int error = errno;
    return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIoError,
                  fmt::format("{}: cannot be {}: {}", name, what, std::strerror(error)));
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(nullptr, std::fclose);
  if (path != "-") {
    opened.reset(std::fopen(path.c_str(), "rb"));
    if (!opened) return fail("opened");
  }
  std::FILE* file = opened ? opened.get() : stdin;
  std::string text;
  std::array<char, size_t{64} << 10> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), got);
    if (text.size() > kMaxTextBytes) {
      return InvalidArgument(fmt::format("{}: more than {} bytes", name, kMaxTextBytes));
    }
  }
  if (std::ferror(file) != 0) return fail("read");
  return text;
}

}  // namespace varve::cli
