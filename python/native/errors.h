// How a Status becomes varve.Error: bindings throw StatusError, and the translator that
// RegisterErrors installs makes the Python exception, with the library's message and its code.

#ifndef VARVE_PYTHON_NATIVE_ERRORS_H_
#define VARVE_PYTHON_NATIVE_ERRORS_H_

#include <exception>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>

#include "varve/status.h"

namespace varve::python {

class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void Check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T Take(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

[[noreturn]] inline void Refuse(std::string message) {
  throw StatusError(InvalidArgument(std::move(message)));
}

// Adds varve.Error to the module.
void RegisterErrors(pybind11::module_& module);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_ERRORS_H_
