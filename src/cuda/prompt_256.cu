#include "cuda/prompt_kernel.cuh"

namespace varve::cuda {

PromptKernels PromptKernels256() { return MakePromptKernels<256>(); }

}  // namespace varve::cuda
