// cuBLASLt, loaded when it is first asked for: its functions by their names without the prefix.

#ifndef VARVE_CUDA_LAYERS_CUBLAS_LT_H_
#define VARVE_CUDA_LAYERS_CUBLAS_LT_H_

#include <cublasLt.h>

#include "cuda/device_status.h"

namespace varve::cuda {

// clang-format off
#define VARVE_CUBLAS_LT_CALLS(CALL) \
  CALL(Create) \
  CALL(Destroy) \
  CALL(Matmul) \
  CALL(MatmulDescCreate) \
  CALL(MatmulDescDestroy) \
  CALL(MatmulDescSetAttribute) \
  CALL(MatrixLayoutCreate) \
  CALL(MatrixLayoutDestroy) \
  CALL(MatmulPreferenceCreate) \
  CALL(MatmulPreferenceDestroy) \
  CALL(MatmulPreferenceSetAttribute) \
  CALL(MatmulAlgoGetHeuristic)
// clang-format on

class CublasLt {
 public:
  CublasLt() { status_ = Load(); }

  // One for the process; it stays loaded. Any thread.
  static const CublasLt& Get();
  // kNotFound if it is not there.
  const DeviceStatus& status() const { return status_; }

// A member's name cannot stand in parentheses.
#define VARVE_DECLARE_CALL(name) \
  decltype(&cublasLt##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  VARVE_CUBLAS_LT_CALLS(VARVE_DECLARE_CALL)
#undef VARVE_DECLARE_CALL

 private:
  DeviceStatus Load();

  DeviceStatus status_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_LAYERS_CUBLAS_LT_H_
