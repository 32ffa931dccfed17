#include "runtime/model/open_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/llama/llama_family.h"
#include "runtime/model/model_family.h"

namespace varve {
namespace {

// One line per family.
constexpr const ModelFamily* kFamilies[] = {&llama::kFamily};

// The family whose list has `name`; null if none has. `known` gets all lists, separated by ", ".
const ModelFamily* FindFamily(ModelFamily::Names ModelFamily::*list, std::string_view name,
                              std::string* known) {
  for (const ModelFamily* family : kFamilies) {
    const std::span<const std::string_view> names = (family->*list)();
    if (std::find(names.begin(), names.end(), name) != names.end()) return family;
    *known += fmt::format("{}{}", known->empty() ? "" : ", ", fmt::join(names, ", "));
  }
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<const DecoderModel>> LoadDecoderModel(
    const std::shared_ptr<const GgufFile>& file) {
  if (file == nullptr) return InvalidArgument("model: no file");
  const Result<std::string_view> architecture = file->GetString("general.architecture");
  if (!architecture.ok()) return file->InFile(architecture.status());
  std::string known;
  const ModelFamily* family = FindFamily(&ModelFamily::architectures, *architecture, &known);
  if (family == nullptr) {
    return Unimplemented(fmt::format("{}: general.architecture {} is not built in; these are: {}",
                                     file->name(), Quoted(*architecture), known));
  }
  return family->load(file);
}

Result<std::shared_ptr<const DecoderModel>> OpenDecoderModel(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  return LoadDecoderModel(file);
}

Result<std::shared_ptr<const DecoderModel>> RandomDecoderModel(std::string_view name,
                                                               WeightType type, uint64_t seed) {
  std::string known;
  const ModelFamily* family = FindFamily(&ModelFamily::random_names, name, &known);
  if (family == nullptr) {
    return NotFound(fmt::format("random model {}: known are {}", Quoted(name), known));
  }
  return family->random(name, type, seed);
}

std::string RandomModelNames() {
  std::string known;
  FindFamily(&ModelFamily::random_names, "", &known);
  return known;
}

}  // namespace varve
