// The module varve._native: the public API of libvarve, nothing below it.

#include "bindings.h"
#include "errors.h"
#include "observers.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native part of varve; import varve instead.";
  module.attr("__version__") = VARVE_PYTHON_VERSION;
  varve::python::RegisterErrors(module);
  varve::python::RegisterCodebook(module);
  varve::python::RegisterPlan(module);
  varve::python::RegisterObservers(module);
  varve::python::RegisterCache(module);
  varve::python::RegisterStep(module);
  varve::python::RegisterFiles(module);
}
