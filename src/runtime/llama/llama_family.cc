#include "runtime/llama/llama_family.h"

#include <utility>

#include "runtime/llama/llama_model.h"

namespace varve::llama {
namespace {

Result<std::shared_ptr<const DecoderModel>> Load(const std::shared_ptr<const GgufFile>& file) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const LlamaModel> model, LlamaModel::Load(file));
  return std::shared_ptr<const DecoderModel>(std::move(model));
}

Result<std::shared_ptr<const DecoderModel>> Random(std::string_view name, WeightType type,
                                                   uint64_t seed) {
  VARVE_ASSIGN_OR_RETURN(LlamaConfig config, PresetConfig(name));
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const LlamaModel> model,
                         LlamaModel::Random(config, type, seed));
  return std::shared_ptr<const DecoderModel>(std::move(model));
}

}  // namespace

const ModelFamily kFamily = {.architectures = LlamaArchitectures,
                             .load = Load,
                             .random_names = PresetNames,
                             .random = Random};

}  // namespace varve::llama
