#include "cli/models/found_models.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "runtime/whisper/whisper_tensors.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTextSuffix = ".gguf";
constexpr std::string_view kSpeechSuffix = ".bin";
constexpr std::string_view kCheckpointSuffix = ".pt";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The build folder lies in the repository; an installed program has no such folder beside it.
std::optional<fs::path> RepositoryFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  const fs::path repository = program.parent_path().parent_path();
  if (!fs::exists(repository / "models" / "catalogue.json", error)) return std::nullopt;
  return repository / "models" / "cache";
}

std::optional<FoundModel> FindFile(const fs::path& path, std::string name,
                                   const CatalogueModel* catalogue) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  const ModelKind kind = catalogue != nullptr                ? catalogue->kind
                         : path.extension() == kSpeechSuffix ? ModelKind::kSpeech
                                                             : ModelKind::kText;
  return FoundModel{std::move(name), path.string(), bytes, kind, catalogue};
}

// Codebooks, compressors and much else are called .bin too.
bool IsSpeechFile(const fs::path& path) {
  std::array<char, 4> begin = {};
  std::ifstream stream(path, std::ios::binary);
  stream.read(begin.data(), begin.size());
  return stream.gcount() == std::ssize(begin) &&
         WhisperKindOf(std::as_bytes(std::span(begin))) == WhisperFileKind::kGgml;
}

std::optional<FoundModel> FindCatalogueModel(const CatalogueModel& model) {
  for (const std::string& folder : ModelFolders()) {
    for (const std::string& file : {model.converted, model.file}) {
      if (file.empty()) continue;
      for (const fs::path& path : {fs::path(folder) / model.name / file, fs::path(folder) / file}) {
        if (std::optional<FoundModel> found = FindFile(path, model.name, &model)) return found;
      }
    }
  }
  return std::nullopt;
}

// Later parts of a split model are no models ("…-00002-of-00003.gguf").
bool IsLaterPart(std::string_view stem) {
  const size_t of = stem.rfind("-of-");
  return of != stem.npos && of >= 6 && stem[of - 6] == '-' && stem.substr(of - 5, 5) != "00001";
}

bool IsCatalogueFile(std::string_view file) {
  return std::ranges::any_of(ModelCatalogue(), [&](const CatalogueModel& model) {
    return model.file == file || model.converted == file;
  });
}

std::vector<FoundModel> FindOwnModels() {
  std::vector<FoundModel> models;
  for (const std::string& folder : ModelFolders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const fs::path& path = entry.path();
      const std::string stem = path.stem().string();
      const bool is_text = path.extension() == kTextSuffix && !IsLaterPart(stem);
      const bool is_speech = path.extension() == kSpeechSuffix && IsSpeechFile(path);
      if (!is_text && !is_speech) continue;
      if (IsCatalogueFile(path.filename().string())) continue;
      const bool is_known =
          FindInCatalogue(stem) != nullptr ||
          std::ranges::any_of(models, [&](const FoundModel& model) { return model.name == stem; });
      if (is_known) continue;
      if (std::optional<FoundModel> found = FindFile(path, stem, nullptr)) {
        models.push_back(*std::move(found));
      }
    }
  }
  std::ranges::sort(models, {}, &FoundModel::name);
  return models;
}

std::string ListFolders() {
  std::string list;
  for (const std::string& folder : ModelFolders()) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", folder);
  }
  return list;
}

Status NotThere(const std::string& value) {
  const CatalogueModel* wanted = FindInCatalogue(value);
  if (wanted != nullptr) {
    return NotFound(
        fmt::format("{} is not here yet (looked in {}); bring its {:.0f} MB with: ./dev models {}",
                    value, ListFolders(), static_cast<double>(wanted->bytes) / 1e6, value));
  }
  std::string names;
  for (const FoundModel& model : FindModels()) names += " " + model.name;
  return NotFound(fmt::format(
      "\"{}\" is no file, and no model has that name; here are:{}. `varve models` tells more",
      value, names.empty() ? " none" : names));
}

Status OtherKind(const std::string& value, ModelKind kind) {
  const bool is_text = kind == ModelKind::kText;
  return InvalidArgument(fmt::format("{} is a model of {}; `varve {} -m {}` takes it", value,
                                     ModelKindName(kind), is_text ? "run" : "transcribe", value));
}

}  // namespace

std::vector<std::string> ModelFolders() {
  if (std::string folder = Environment("VARVE_MODELS"); !folder.empty()) return {folder};
  std::vector<std::string> folders;
  if (const std::optional<fs::path> repository = RepositoryFolder()) {
    folders.push_back(repository->string());
  }
  const std::string data = Environment("XDG_DATA_HOME");
  const std::string home = Environment("HOME");
  if (!data.empty() || !home.empty()) {
    const fs::path user = data.empty() ? fs::path(home) / ".local" / "share" : fs::path(data);
    folders.push_back((user / "varve" / "models").string());
  }
  return folders;
}

std::vector<FoundModel> FindModels() {
  std::vector<FoundModel> models;
  for (const CatalogueModel& model : ModelCatalogue()) {
    if (std::optional<FoundModel> found = FindCatalogueModel(model)) {
      models.push_back(*std::move(found));
    }
  }
  std::ranges::move(FindOwnModels(), std::back_inserter(models));
  return models;
}

Result<std::string> ResolveModel(const std::string& value, ModelKind kind) {
  std::error_code error;
  if (value.find('/') != value.npos || value.ends_with(kTextSuffix) ||
      value.ends_with(kSpeechSuffix) || value.ends_with(kCheckpointSuffix) ||
      fs::is_regular_file(value, error)) {
    return value;
  }
  for (const FoundModel& model : FindModels()) {
    if (model.name != value) continue;
    return model.kind == kind ? Result<std::string>(model.path) : OtherKind(value, model.kind);
  }
  const CatalogueModel* known = FindInCatalogue(value);
  return known != nullptr && known->kind != kind ? OtherKind(value, known->kind) : NotThere(value);
}

}  // namespace varve::cli
