#include "cuda/layers/cublas_lt.h"

#include <dlfcn.h>

#include <cstdio>

namespace varve::cuda {

const CublasLt& CublasLt::Get() {
  static const CublasLt one;
  return one;
}

DeviceStatus CublasLt::Load() {
  char file[32];
  std::snprintf(file, sizeof(file), "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {StatusCode::kNotFound, "cuBLASLt: %s; LD_LIBRARY_PATH may name its folder", dlerror()};
  }
  const char* missing = nullptr;
#define VARVE_FIND_CALL(call)                                                  \
  (call) = reinterpret_cast<decltype(call)>(dlsym(library, "cublasLt" #call)); \
  if ((call) == nullptr) missing = "cublasLt" #call;
  VARVE_CUBLAS_LT_CALLS(VARVE_FIND_CALL)
#undef VARVE_FIND_CALL
  if (missing != nullptr) return {StatusCode::kNotFound, "cuBLASLt: %s has no %s", file, missing};
  return {};
}

}  // namespace varve::cuda
