// Status and Result: how every call of Varve reports failure.
//
// No exception crosses the public API and nothing in the library prints. One thing is outside this
// promise: when the ordinary heap (tables and work buffers, not page memory) is exhausted, the C++
// API throws std::bad_alloc or ends the process, as the standard library does. A message names the
// field, its value and the limit: "page 7: row_count 60000 > 64".
//
// A Status is a value: copy it, keep it, compare its code. Thread-compatible, like std::string.

#ifndef VARVE_STATUS_H_
#define VARVE_STATUS_H_

#include <optional>
#include <string>
#include <utility>

#include "varve/export.h"

namespace varve {

// Numbers are part of the C ABI (varve_status in varve.h) and are never reused.
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,     // the caller passed something that can never work
  kOutOfMemory = 2,         // the cap, or the system, has no room; nothing was changed
  kNotFound = 3,            // a sequence or file that does not exist (any more)
  kFailedPrecondition = 4,  // right call, wrong moment (no step open, rows missing)
  kUnimplemented = 5,       // the grammar knows it, this build does not do it
  kDataLoss = 6,            // stored bytes fail their check
  kIoError = 7,             // the operating system refused a read or write
  kInternal = 8,            // a bug in Varve
};

// Stable lower-case name of a code, for example "out of memory".
VARVE_API const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "ok", or "<code name>: <message>".
  VARVE_API std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) {
  return Status(StatusCode::kInvalidArgument, std::move(m));
}
inline Status OutOfMemory(std::string m) { return Status(StatusCode::kOutOfMemory, std::move(m)); }
inline Status NotFound(std::string m) { return Status(StatusCode::kNotFound, std::move(m)); }
inline Status FailedPrecondition(std::string m) {
  return Status(StatusCode::kFailedPrecondition, std::move(m));
}
inline Status Unimplemented(std::string m) {
  return Status(StatusCode::kUnimplemented, std::move(m));
}
inline Status DataLoss(std::string m) { return Status(StatusCode::kDataLoss, std::move(m)); }
inline Status IoError(std::string m) { return Status(StatusCode::kIoError, std::move(m)); }
inline Status Internal(std::string m) { return Status(StatusCode::kInternal, std::move(m)); }

// Either a value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by intent
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by intent

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Require ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace varve

// Leaves the enclosing function with the status if `expr` is not ok.
#define VARVE_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::varve::Status varve_status_ = (expr);        \
    if (!varve_status_.ok()) return varve_status_; \
  } while (0)

// Declares a variable with the value of a Result, or leaves the enclosing function with its status:
//
//   VARVE_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
#define VARVE_ASSIGN_OR_RETURN(declaration, ...) \
  VARVE_ASSIGN_OR_RETURN_NAMED(VARVE_JOIN(varve_result_, __LINE__), declaration, __VA_ARGS__)
#define VARVE_ASSIGN_OR_RETURN_NAMED(result, declaration, ...) \
  auto result = (__VA_ARGS__);                                 \
  if (!(result).ok()) return (result).status();                \
  declaration = std::move(result).value()
#define VARVE_JOIN(a, b) VARVE_JOIN_NOW(a, b)
#define VARVE_JOIN_NOW(a, b) a##b

#endif  // VARVE_STATUS_H_
