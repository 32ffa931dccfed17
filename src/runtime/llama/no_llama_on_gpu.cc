// What a build without CUDA links in place of src/runtime/cuda.

#include "runtime/llama/llama_on_gpu.h"

namespace varve {

Result<std::shared_ptr<const DecoderModel>> PlaceLlamaOnGpu(
    const std::shared_ptr<const LlamaModel>&, int, Executor&) {
  return Unimplemented("a model on a GPU: this build has no CUDA");
}

}  // namespace varve
