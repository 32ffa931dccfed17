#include "cli/models/model_catalogue.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/embedded_model.h"

namespace varve::cli {

const char* ModelKindName(ModelKind kind) { return kind == ModelKind::kText ? "text" : "speech"; }

Result<std::vector<CatalogueModel>> ParseCatalogue(std::string_view json) {
  std::vector<CatalogueModel> models;
  try {
    const nlohmann::json catalogue = nlohmann::json::parse(json);
    for (const nlohmann::json& entry : catalogue.at("models")) {
      CatalogueModel model;
      model.name = entry.at("name").get<std::string>();
      model.what = entry.at("what").get<std::string>();
      model.licence = entry.at("licence").get<std::string>();
      const auto kind = entry.at("kind").get<std::string>();
      if (kind != ModelKindName(ModelKind::kText) && kind != ModelKindName(ModelKind::kSpeech)) {
        return InvalidArgument(
            fmt::format("catalogue: {}: kind \"{}\" is neither text nor speech", model.name, kind));
      }
      model.kind = kind == "text" ? ModelKind::kText : ModelKind::kSpeech;
      if (const auto convert = entry.find("convert"); convert != entry.end()) {
        model.converted = convert->at("file").get<std::string>();
      }
      for (const nlohmann::json& file : entry.at("files")) {
        model.bytes += file.at("bytes").get<uint64_t>();
        if (model.file.empty()) model.file = file.at("name").get<std::string>();
      }
      if (model.file.empty()) {
        return InvalidArgument(fmt::format("catalogue: {} has no files", model.name));
      }
      models.push_back(std::move(model));
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(fmt::format("catalogue: {}", error.what()));
  }
  return models;
}

std::span<const CatalogueModel> ModelCatalogue() {
  // A test parses the embedded text: the program cannot have a bad one.
  static const std::vector<CatalogueModel> models =
      *ParseCatalogue(EmbeddedCatalogue());  // lives as long as the program
  return models;
}

const CatalogueModel* FindInCatalogue(std::string_view name) {
  for (const CatalogueModel& model : ModelCatalogue()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

}  // namespace varve::cli
