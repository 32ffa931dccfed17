#include "cuda/prompt_kernel.cuh"

namespace varve::cuda {

PromptKernels PromptKernels96() { return MakePromptKernels<96>(); }

}  // namespace varve::cuda
