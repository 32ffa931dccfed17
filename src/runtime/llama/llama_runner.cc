#include "runtime/llama/llama_runner.h"

#include "runtime/llama/forward_step.h"

namespace varve {

LlamaRunner::LlamaRunner(const std::shared_ptr<const LlamaModel>& model, Executor& executor,
                         ProductPrecision precision)
    : DecoderRunner(model),
      step_(std::make_unique<ForwardStep>(*model, executor, precision, clock())) {}

LlamaRunner::~LlamaRunner() = default;

Status LlamaRunner::RunStep(Cache& cache, std::span<const StepEntry> entries,
                            std::span<const int32_t> tokens, int logits_from, float* logits) {
  return step_->Run(cache, entries, tokens, logits_from, logits);
}

size_t LlamaRunner::scratch_bytes() const { return step_->scratch_bytes(); }

}  // namespace varve
