#include "cuda/prompt_kernel.cuh"

namespace varve::cuda {

PromptKernels PromptKernels128() { return MakePromptKernels<128>(); }

}  // namespace varve::cuda
