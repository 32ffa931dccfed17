#include "errors.h"

namespace py = pybind11;

namespace varve::python {
namespace {

// Lives as long as the interpreter; exceptions may be made while modules are torn down.
PyObject* g_error = nullptr;

// By value: that is the signature that pybind11 takes.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const StatusError& error) {
    py::object instance = py::reinterpret_borrow<py::object>(g_error)(error.status().message());
    instance.attr("code") = StatusCodeName(error.status().code());
    PyErr_SetObject(g_error, instance.ptr());
  }
}

}  // namespace

void RegisterErrors(py::module_& module) {
  g_error = PyErr_NewExceptionWithDoc(
      "varve.Error",
      "What the library refuses, with its message. `code` is the status in words: 'invalid "
      "argument',\n'out of memory', 'not found', 'failed precondition', 'unimplemented', 'data "
      "loss', 'i/o error'.\n\n"
      ">>> try:\n"
      "...     varve.Plan('q9_0')\n"
      "... except varve.Error as error:\n"
      "...     print(error.code)\n"
      "invalid argument\n",
      PyExc_RuntimeError, nullptr);
  if (g_error == nullptr) throw py::error_already_set();
  py::object error = py::reinterpret_borrow<py::object>(g_error);
  error.attr("code") = "";
  module.add_object("Error", error);
  py::register_exception_translator(&Translate);
}

}  // namespace varve::python
