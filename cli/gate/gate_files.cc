#include "cli/gate/gate_files.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/embedded_file.h"
#include "cli/folder_files.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"

// gate_files.inc is written by CMakeLists.txt: a line per file.
#define VARVE_GATE_FILE(symbol, path, name) VARVE_EMBED_FILE(symbol, path);
#include "gate_files.inc"
#undef VARVE_GATE_FILE

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::vector<GateFile> EmbeddedGateFiles() {
  std::vector<GateFile> files;
#define VARVE_GATE_FILE(symbol, path, name) \
  files.push_back(GateFile{name, std::string(EmbeddedText(symbol##_begin, symbol##_end))});
#include "gate_files.inc"
#undef VARVE_GATE_FILE
  std::ranges::sort(files, {}, &GateFile::name);
  return files;
}

Result<std::vector<GateFile>> ReadGateFolder(const std::string& folder) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles("--cases", folder));
  std::vector<GateFile> files;
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    VARVE_ASSIGN_OR_RETURN(std::string text, ReadTextFile((fs::path(folder) / name).string()));
    files.push_back({name, std::move(text)});
  }
  if (files.empty()) {
    return NotFound(fmt::format("--cases \"{}\": no .json files in it", folder));
  }
  return files;
}

Status CopyGateFiles(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    return InvalidArgument(fmt::format("--copy-cases \"{}\": exists and is not empty", folder));
  }
  for (const GateFile& file : EmbeddedGateFiles()) {
    const fs::path path = fs::path(folder) / file.name;
    fs::create_directories(path.parent_path(), error);
    VARVE_RETURN_IF_ERROR(WriteText(path.string(), file.text));
  }
  return Status();
}

}  // namespace varve::cli
