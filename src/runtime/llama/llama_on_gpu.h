// A LlamaModel on a GPU: what src/runtime/cuda does, without a word of CUDA.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_ON_GPU_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_ON_GPU_H_

#include <memory>

#include "runtime/llama/llama_model.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

// As DecoderModel::PlaceOnGpu. kUnimplemented in a build without CUDA (no_llama_on_gpu.cc).
Result<std::shared_ptr<const DecoderModel>> PlaceLlamaOnGpu(
    const std::shared_ptr<const LlamaModel>& model, int device_index, Executor& executor);

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_ON_GPU_H_
