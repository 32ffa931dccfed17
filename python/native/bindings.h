// What each file of bindings adds to the module.

#ifndef VARVE_PYTHON_NATIVE_BINDINGS_H_
#define VARVE_PYTHON_NATIVE_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace varve::python {

void RegisterPlan(pybind11::module_& module);
void RegisterCodebook(pybind11::module_& module);
void RegisterCache(pybind11::module_& module);
void RegisterStep(pybind11::module_& module);
void RegisterFiles(pybind11::module_& module);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_BINDINGS_H_
