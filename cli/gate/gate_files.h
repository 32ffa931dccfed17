// The folder gate/ of the source tree as bytes of the program: the cases of `varve gate` and the
// list of its prompts, so that an installed program measures the same as one in the tree.

#ifndef VARVE_CLI_GATE_GATE_FILES_H_
#define VARVE_CLI_GATE_GATE_FILES_H_

#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

struct GateFile {
  std::string name;  // "40-runtime_store.json", "prompts/manifest.json"
  std::string text;
};

// Ascending by name; the manifest of prompts among them.
std::vector<GateFile> EmbeddedGateFiles();

// The *.json files of a folder, ascending by name. Errors name the folder.
Result<std::vector<GateFile>> ReadGateFolder(const std::string& folder);

// Writes the embedded folder to a new or empty folder, for users who change it.
Status CopyGateFiles(const std::string& folder);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_FILES_H_
