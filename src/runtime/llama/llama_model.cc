#include "runtime/llama/llama_model.h"

#include <utility>

#include "runtime/gguf/gguf_fingerprint.h"
#include "runtime/llama/llama_on_gpu.h"
#include "runtime/llama/llama_runner.h"
#include "runtime/llama/llama_weights.h"
#include "runtime/llama/woven_weights.h"

namespace varve {
namespace {

// Stored bytes that one decoded token reads.
uint64_t BytesPerToken(const LlamaWeights& weights) {
  uint64_t bytes = weights.output.bytes();
  for (const LlamaLayer& layer : weights.layers) {
    for (const WeightMatrix* matrix : MatricesOf(layer)) bytes += matrix->bytes();
  }
  return bytes;
}

DecoderInfo InfoOf(const LlamaConfig& config, const LlamaWeights& weights) {
  DecoderInfo info;
  info.architecture = config.architecture;
  info.name = config.name;
  info.shape.num_layers = config.num_layers;
  info.shape.num_kv_heads = config.num_kv_heads;
  info.shape.group_size = config.num_heads / config.num_kv_heads;
  info.shape.key_dim = config.head_dim;
  info.shape.value_dim = config.head_dim;
  info.width = config.width;
  info.vocab_size = config.vocab_size;
  info.context = config.context;
  info.weight_bytes_per_token = BytesPerToken(weights);
  if (weights.file != nullptr) {
    info.source = weights.file->name();
    info.fingerprint = ModelFingerprint(*weights.file);
  }
  return info;
}

}  // namespace

LlamaModel::LlamaModel(DecoderInfo info, LlamaConfig config, std::unique_ptr<LlamaWeights> weights)
    : DecoderModel(std::move(info)), config_(std::move(config)), weights_(std::move(weights)) {}
LlamaModel::~LlamaModel() = default;

Result<std::shared_ptr<const LlamaModel>> LlamaModel::Load(
    const std::shared_ptr<const GgufFile>& file) {
  if (file == nullptr) return InvalidArgument("model: no file");
  Result<LlamaConfig> config = ReadLlamaConfig(*file);
  if (!config.ok()) return file->InFile(config.status());
  Result<std::unique_ptr<LlamaWeights>> weights = LoadLlamaWeights(file, *config);
  if (!weights.ok()) return file->InFile(weights.status());
  DecoderInfo info = InfoOf(*config, **weights);
  return std::shared_ptr<const LlamaModel>(
      new LlamaModel(std::move(info), std::move(*config), std::move(*weights)));
}

Result<std::shared_ptr<const LlamaModel>> LlamaModel::Random(const LlamaConfig& config,
                                                             WeightType type, uint64_t seed) {
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<LlamaWeights> weights,
                         RandomLlamaWeights(config, type, seed));
  DecoderInfo info = InfoOf(config, *weights);
  return std::shared_ptr<const LlamaModel>(
      new LlamaModel(std::move(info), config, std::move(weights)));
}

uint64_t LlamaModel::RepackBytes() const { return WovenBytes(*weights_); }

Result<std::shared_ptr<const DecoderModel>> LlamaModel::Repack(Executor& executor) const {
  auto woven = std::make_unique<LlamaWeights>(*weights_);
  VARVE_RETURN_IF_ERROR(WeaveWeights(executor, *woven));
  return std::shared_ptr<const DecoderModel>(new LlamaModel(info(), config_, std::move(woven)));
}

Result<std::shared_ptr<const DecoderModel>> LlamaModel::PlaceOnGpu(int device_index,
                                                                   Executor& executor) const {
  return PlaceLlamaOnGpu(shared_from_this(), device_index, executor);
}

std::unique_ptr<DecoderRunner> LlamaModel::MakeRunner(Executor& executor,
                                                      ProductPrecision precision) const {
  return std::make_unique<LlamaRunner>(shared_from_this(), executor, precision);
}

Result<std::unique_ptr<Tokenizer>> LlamaModel::ReadTokenizer() const {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(*weights_->file);
  if (!tokenizer.ok()) return weights_->file->InFile(tokenizer.status());
  return tokenizer;
}

}  // namespace varve
