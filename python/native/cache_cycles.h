// How Python's garbage collector sees through a varve.Cache: the cache holds the functions that
// observe it, and these may hold whoever holds the cache. Without this such a cycle would never go.

#ifndef VARVE_PYTHON_NATIVE_CACHE_CYCLES_H_
#define VARVE_PYTHON_NATIVE_CACHE_CYCLES_H_

#include <pybind11/pybind11.h>

namespace varve::python {

// For the class of CacheHandle, whose holder is a shared_ptr.
pybind11::custom_type_setup VisibleCycles();

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_CACHE_CYCLES_H_
