// LlamaRunner: forward passes of a LlamaModel; the scratch is a ForwardStep. Not thread-safe.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_RUNNER_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_RUNNER_H_

#include <cstddef>
#include <memory>

#include "runtime/kernels/linear.h"
#include "runtime/llama/llama_model.h"
#include "runtime/model/decoder_runner.h"
#include "varve/executor.h"

namespace varve {

class ForwardStep;  // forward_step.h

class LlamaRunner final : public DecoderRunner {
 public:
  // `executor` is not owned.
  LlamaRunner(const std::shared_ptr<const LlamaModel>& model, Executor& executor,
              ProductPrecision precision = ProductPrecision::kF32);
  ~LlamaRunner() override;

  size_t scratch_bytes() const override;

 private:
  Status RunStep(Cache& cache, std::span<const StepEntry> entries, std::span<const int32_t> tokens,
                 int logits_from, float* logits) override;

  std::unique_ptr<ForwardStep> step_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_RUNNER_H_
