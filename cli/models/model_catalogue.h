// The models of models/catalogue.json that `./dev models` brings, as the program knows them: the
// file is part of the program. What is on this machine: found_models.h. Any number of threads may
// read it.

#ifndef VARVE_CLI_MODELS_MODEL_CATALOGUE_H_
#define VARVE_CLI_MODELS_MODEL_CATALOGUE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

// Which commands take a model: run, eval, bench … (GGUF), or transcribe (Whisper).
enum class ModelKind : uint8_t { kText, kSpeech };
const char* ModelKindName(ModelKind kind);  // "text", "speech"

struct CatalogueModel {
  std::string name;     // "smollm2"
  std::string what;     // one line for people
  std::string licence;  // SPDX
  uint64_t bytes = 0;   // of all files
  ModelKind kind = ModelKind::kText;
  std::string file;       // the one that commands read; others lie beside it
  std::string converted;  // what `./dev models` makes of it, to be read instead; empty: nothing
};

// Errors name what is missing or of a wrong type.
Result<std::vector<CatalogueModel>> ParseCatalogue(std::string_view json);

// Of this program.
std::span<const CatalogueModel> ModelCatalogue();
// nullptr if there is none of that name.
const CatalogueModel* FindInCatalogue(std::string_view name);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODELS_MODEL_CATALOGUE_H_
