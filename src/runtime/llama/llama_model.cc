#include "runtime/llama/llama_model.h"

#include <string>
#include <utility>

#include "runtime/gguf/gguf_fingerprint.h"
#include "runtime/llama/llama_weights.h"

namespace varve {
namespace {

// Says which file, where the message does not begin with it already.
Status InFile(const std::string& name, const Status& status) {
  const std::string prefix = name + ": ";
  if (status.message().starts_with(prefix)) return status;
  return Status(status.code(), prefix + status.message());
}

}  // namespace

LlamaModel::LlamaModel() = default;
LlamaModel::~LlamaModel() = default;

Result<std::shared_ptr<const LlamaModel>> LlamaModel::Load(std::shared_ptr<const GgufFile> file) {
  if (file == nullptr) return InvalidArgument("model: no file");
  const std::string name = file->name();
  Result<LlamaConfig> config = ReadLlamaConfig(*file);
  if (!config.ok()) return InFile(name, config.status());
  const uint64_t fingerprint = ModelFingerprint(*file);
  Result<std::unique_ptr<LlamaWeights>> weights = LoadLlamaWeights(std::move(file), *config);
  if (!weights.ok()) return InFile(name, weights.status());
  auto model = std::shared_ptr<LlamaModel>(new LlamaModel);
  model->config_ = std::move(*config);
  model->weights_ = std::move(*weights);
  model->fingerprint_ = fingerprint;
  return std::shared_ptr<const LlamaModel>(std::move(model));
}

Result<std::shared_ptr<const LlamaModel>> LlamaModel::Random(const LlamaConfig& config,
                                                             WeightType type, uint64_t seed) {
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<LlamaWeights> weights,
                         RandomLlamaWeights(config, type, seed));
  auto model = std::shared_ptr<LlamaModel>(new LlamaModel);
  model->config_ = config;
  model->weights_ = std::move(weights);
  return std::shared_ptr<const LlamaModel>(std::move(model));
}

CacheShape LlamaModel::cache_shape() const {
  CacheShape shape;
  shape.num_layers = config_.num_layers;
  shape.num_kv_heads = config_.num_kv_heads;
  shape.group_size = config_.num_heads / config_.num_kv_heads;
  shape.key_dim = config_.head_dim;
  shape.value_dim = config_.head_dim;
  return shape;
}

uint64_t LlamaModel::weight_bytes_per_token() const {
  uint64_t bytes = weights_->output.bytes();
  for (const LlamaLayer& layer : weights_->layers) {
    for (const WeightMatrix* matrix :
         {&layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.ffn_gate,
          &layer.ffn_up, &layer.ffn_down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

}  // namespace varve
