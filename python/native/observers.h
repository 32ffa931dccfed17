// Python functions as observers of a cache.
//
// The cache calls an observer on the thread that runs the step, without the GIL; the observer takes
// it for the call. What a function raises cannot pass through the library: it is kept, the
// function is not called again, and Rethrow raises it when the call of the cache has returned.

#ifndef VARVE_PYTHON_NATIVE_OBSERVERS_H_
#define VARVE_PYTHON_NATIVE_OBSERVERS_H_

#include <optional>
#include <string_view>

#include <pybind11/pybind11.h>

#include "varve/cache.h"

namespace varve::python {

class Observers : public AttentionObserver, public RetentionObserver, public LogSink {
 public:
  // Each is a function or None.
  Observers(pybind11::object on_attention, pybind11::object on_retention, pybind11::object on_log);
  // Hands itself to the cache for those functions that there are.
  void Attach(CacheOptions& options);
  // Raises what a function has raised since the last call. With the GIL.
  void Rethrow();
  // For Python's garbage collector: shows it the functions, and lets go of them. With the GIL. What
  // has been let go of is not called any more.
  int Visit(visitproc visit, void* arg) const;
  void Clear();

  void OnAttention(const AttentionMass& mass) override;
  void OnRetention(const RetentionEvent& event) override;
  void OnLine(std::string_view line) override;

 private:
  template <typename Arguments>
  void Call(const pybind11::object& function, const Arguments& arguments);

  pybind11::object on_attention_;
  pybind11::object on_retention_;
  pybind11::object on_log_;
  std::optional<pybind11::error_already_set> raised_;
};

void RegisterObservers(pybind11::module_& module);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_OBSERVERS_H_
