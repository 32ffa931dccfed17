// Whether a GPU must be there: with VARVE_NEED_GPU=1, as on a machine that has one, a program that
// finds none fails and is not skipped.

#ifndef VARVE_TESTS_CUDA_NEED_GPU_H_
#define VARVE_TESTS_CUDA_NEED_GPU_H_

#include <cstdlib>
#include <string_view>

namespace varve {

inline bool NeedGpu() {
  const char* const need = std::getenv("VARVE_NEED_GPU");
  return need != nullptr && need == std::string_view("1");
}

}  // namespace varve

#endif  // VARVE_TESTS_CUDA_NEED_GPU_H_
