#include "runtime/whisper/whisper_model.h"

#include <utility>

#include "kernels/content_hash.h"

namespace varve {
namespace {

uint64_t Fingerprint(const WhisperTensors& model) {
  uint64_t hash = HashBytes(&model.config, sizeof(model.config));
  for (const auto& [name, tensor] : model.tensors) {
    hash = HashBytes(name.data(), name.size(), hash);
    hash = HashBytes(tensor.data, tensor.matrix().bytes(), hash);
  }
  return hash != 0 ? hash : 1;
}

}  // namespace

WhisperModel::WhisperModel(WhisperTensors tensors, WhisperVocabulary vocabulary)
    : tensors_(std::move(tensors)),
      vocabulary_(std::move(vocabulary)),
      fingerprint_(Fingerprint(tensors_)) {}

Result<std::shared_ptr<const WhisperModel>> WhisperModel::Create(WhisperTensors tensors) {
  VARVE_ASSIGN_OR_RETURN(WhisperVocabulary vocabulary,
                         WhisperVocabulary::Create(tensors.config, tensors.tokens));
  std::shared_ptr<WhisperModel> model(new WhisperModel(std::move(tensors), std::move(vocabulary)));
  VARVE_ASSIGN_OR_RETURN(model->weights_, BindWhisperWeights(model->tensors_));
  return std::shared_ptr<const WhisperModel>(std::move(model));
}

Result<std::shared_ptr<const WhisperModel>> WhisperModel::Load(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(WhisperTensors tensors, ReadWhisperFile(path));
  return Create(std::move(tensors));
}

}  // namespace varve
