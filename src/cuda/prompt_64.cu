#include "cuda/prompt_kernel.cuh"

namespace varve::cuda {

PromptKernels PromptKernels64() { return MakePromptKernels<64>(); }

}  // namespace varve::cuda
