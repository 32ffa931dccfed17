// LlamaModel: the models of the Llama family; their forward pass is LlamaRunner.
//
// Weights stay where the file is mapped: loading reads names and shapes only. A model is immutable
// and may serve many runners at once. Nothing outside this folder knows it but as a DecoderModel.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_

#include <cstdint>
#include <memory>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/linear.h"
#include "runtime/llama/llama_config.h"
#include "runtime/model/decoder_model.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

struct LlamaWeights;  // llama_weights.h

class LlamaModel final : public DecoderModel, public std::enable_shared_from_this<LlamaModel> {
 public:
  // Checks that every tensor is there with the right shape; touches no tensor data but the norms
  // and the first bytes of each, for the fingerprint.
  static Result<std::shared_ptr<const LlamaModel>> Load(
      const std::shared_ptr<const GgufFile>& file);
  // Random weights of the given type, for speed: deterministic in `seed`. Owns its memory.
  static Result<std::shared_ptr<const LlamaModel>> Random(const LlamaConfig& config,
                                                          WeightType type, uint64_t seed);
  ~LlamaModel() override;

  const LlamaConfig& config() const { return config_; }
  const LlamaWeights& weights() const { return *weights_; }

  std::unique_ptr<DecoderRunner> MakeRunner(Executor& executor,
                                            ProductPrecision precision) const override;
  uint64_t RepackBytes() const override;
  Result<std::shared_ptr<const DecoderModel>> Repack(Executor& executor) const override;
  Result<std::shared_ptr<const DecoderModel>> PlaceOnGpu(int device_index,
                                                         Executor& executor) const override;

 private:
  LlamaModel(DecoderInfo info, LlamaConfig config, std::unique_ptr<LlamaWeights> weights);
  Result<std::unique_ptr<Tokenizer>> ReadTokenizer() const override;

  LlamaConfig config_;
  std::unique_ptr<LlamaWeights> weights_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_MODEL_H_
