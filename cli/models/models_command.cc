#include "cli/models/models_command.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/models/found_models.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ListedModel {
  std::string name;
  ModelKind kind = ModelKind::kText;
  std::string what;
  std::string licence;
  uint64_t bytes = 0;
  std::string path;  // empty: not here
};

// What is here, then what `./dev models` would bring.
std::vector<ListedModel> ModelsToList() {
  std::vector<ListedModel> listed;
  const std::vector<FoundModel> found = FindModels();
  for (const FoundModel& model : found) {
    const CatalogueModel* known = model.catalogue;
    listed.push_back({model.name, model.kind, known == nullptr ? "" : known->what,
                      known == nullptr ? "" : known->licence,
                      known == nullptr ? model.bytes : known->bytes, model.path});
  }
  for (const CatalogueModel& model : ModelCatalogue()) {
    const bool is_here = std::ranges::any_of(
        found, [&](const FoundModel& other) { return other.name == model.name; });
    if (!is_here) {
      listed.push_back({model.name, model.kind, model.what, model.licence, model.bytes, ""});
    }
  }
  return listed;
}

void PrintModels(const std::vector<ListedModel>& models) {
  TextTable table({"model", "kind", ">MB", "licence", "what", "where"});
  std::string absent;
  for (const ListedModel& model : models) {
    table.AddRow({model.name, ModelKindName(model.kind),
                  fmt::format("{:.1f}", static_cast<double>(model.bytes) / 1e6), model.licence,
                  model.what, model.path.empty() ? "not here" : model.path});
    if (model.path.empty()) absent += " " + model.name;
  }
  table.Print(stdout);
  fmt::print("\nlooked in:");
  for (const std::string& folder : ModelFolders()) fmt::print(" {}", folder);
  fmt::print("\n");
  if (!absent.empty()) fmt::print("bring what is not here: ./dev models{}\n", absent);
}

}  // namespace

Status ListModels(const std::string& json) {
  const std::vector<ListedModel> models = ModelsToList();
  if (json != "-") PrintModels(models);
  if (json.empty()) return Status();
  Json rows = Json::array();
  for (const ListedModel& model : models) {
    rows.push_back({{"name", model.name},
                    {"kind", ModelKindName(model.kind)},
                    {"what", model.what},
                    {"licence", model.licence},
                    {"bytes", model.bytes},
                    {"path", model.path.empty() ? Json() : Json(model.path)}});
  }
  return WriteJson(json, "models", rows);
}

}  // namespace varve::cli

void AddModelsCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("models", "Real models on this machine, by name");
  auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "Write JSON to FILE (- is stdout)");
  command->footer(
      "A name can stand after -m in place of a file. Names come from the folder that VARVE_MODELS\n"
      "names; without it from models/cache of the repository, where `./dev models` puts what it\n"
      "brings, and from varve/models of the user's data (~/.local/share). A file NAME.gguf that "
      "you\n"
      "put there is the model NAME, and so is a Whisper file NAME.bin of ggml. Models of text are\n"
      "for run, eval and bench, those of speech for transcribe.\n\n"
      "Examples:\n"
      "  varve models\n"
      "  varve run -m smollm2 -p 'What is the capital of France?' --temp 0");
  command->callback(varve::cli::Action(json, varve::cli::ListModels, exit_code));
}
