// Models that lie on this machine, by name: what -m means when it names no file.
//
// A folder of models holds NAME/FILE for what `./dev models` brings, and NAME.gguf or NAME.bin for
// whatever its owner puts there; a FILE of the catalogue counts without its NAME/ too. Where a FILE
// has been converted, the result counts. A model is there if its file is; only of a NAME.bin the
// first bytes are read, which must be those of a Whisper file of ggml. Calls read the environment
// and the file system anew; any number of threads may call them.

#ifndef VARVE_CLI_MODELS_FOUND_MODELS_H_
#define VARVE_CLI_MODELS_FOUND_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/models/model_catalogue.h"
#include "varve/status.h"

namespace varve::cli {

struct FoundModel {
  std::string name;
  std::string path;  // of the file that commands read
  uint64_t bytes = 0;
  ModelKind kind = ModelKind::kText;
  const CatalogueModel* catalogue = nullptr;  // nullptr: the owner's own
};

// Where models are looked for, in this order: VARVE_MODELS alone if it is set; else models/cache of
// the repository that the program was built in (beside its build folder), and varve/models of the
// user's data (XDG_DATA_HOME, ~/.local/share). Folders that do not exist are in it.
std::vector<std::string> ModelFolders();

// Catalogue first, then by name. Of two with one name the first folder's counts.
std::vector<FoundModel> FindModels();

// What -m of a command for models of `kind` means: a path as it is, or the file of a model by name.
// A value is a path if there is such a file, or if it could be no name: it has a '/' or ends in
// ".gguf", ".bin" or ".pt". kNotFound says which models there are and how to get the one that was
// asked for; kInvalidArgument: it is a model of the other kind, here or not.
Result<std::string> ResolveModel(const std::string& value, ModelKind kind = ModelKind::kText);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODELS_FOUND_MODELS_H_
