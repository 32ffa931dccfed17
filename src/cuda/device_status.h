// DeviceStatus: how calls of varve_cuda report failure. It is a plain value without allocation, so
// that the library stands alone; ToStatus makes a varve::Status of it.

#ifndef VARVE_CUDA_DEVICE_STATUS_H_
#define VARVE_CUDA_DEVICE_STATUS_H_

#include <cstdarg>
#include <cstdio>

#include "varve/status.h"

namespace varve::cuda {

class [[nodiscard]] DeviceStatus {
 public:
  DeviceStatus() = default;
  // `format` is printf's. A message names the field, its value and the limit.
  [[gnu::format(printf, 3, 4)]] DeviceStatus(StatusCode code, const char* format, ...)
      : code_(code) {
    va_list args;
    va_start(args, format);
    std::vsnprintf(message_, sizeof(message_), format, args);
    va_end(args);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const char* message() const { return message_; }
  Status ToStatus() const { return ok() ? Status() : Status(code_, message_); }

 private:
  StatusCode code_ = StatusCode::kOk;
  char message_[192] = {};
};

}  // namespace varve::cuda

// Leaves the enclosing function with the status if `expr` is not ok.
#define VARVE_CUDA_RETURN_IF_ERROR(expr)                         \
  do {                                                           \
    ::varve::cuda::DeviceStatus varve_device_status_ = (expr);   \
    if (!varve_device_status_.ok()) return varve_device_status_; \
  } while (0)

#endif  // VARVE_CUDA_DEVICE_STATUS_H_
