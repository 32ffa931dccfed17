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

struct CatalogueModel {
  std::string name;     // "smollm2"
  std::string what;     // one line for people
  std::string licence;  // SPDX
  uint64_t bytes = 0;   // of all files
  std::string file;     // the one that commands read; others lie beside it
};

// Errors name what is missing or of a wrong type.
Result<std::vector<CatalogueModel>> ParseCatalogue(std::string_view json);

// Of this program.
std::span<const CatalogueModel> ModelCatalogue();
// nullptr if there is none of that name.
const CatalogueModel* FindInCatalogue(std::string_view name);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODELS_MODEL_CATALOGUE_H_
