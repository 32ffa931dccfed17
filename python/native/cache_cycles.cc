#include "cache_cycles.h"

#include <memory>

#include "cache_handle.h"

namespace py = pybind11;

namespace varve::python {
namespace {

// The cache of a Python object, if that object alone holds it. An open step holds it too, and calls
// the functions: then they are no garbage, whatever becomes of the object. The collector may come
// before the object is made, so nothing is taken for granted.
CacheHandle* OnlyHeldBy(PyObject* self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self);
  if (!instance->simple_layout || !instance->simple_holder_constructed) return nullptr;
  const auto& holder = instance->get_value_and_holder().holder<std::shared_ptr<CacheHandle>>();
  return holder.use_count() == 1 ? holder.get() : nullptr;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const CacheHandle* cache = OnlyHeldBy(self);
  return cache == nullptr ? 0 : cache->observers().Visit(visit, arg);
}

int Clear(PyObject* self) {
  CacheHandle* cache = OnlyHeldBy(self);
  if (cache != nullptr) cache->observers().Clear();
  return 0;
}

// pybind11 before 2.12 leaves the object to the collector while it is taken apart.
void Deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  reinterpret_cast<PyTypeObject*>(py::detail::get_internals().instance_base)->tp_dealloc(self);
}

}  // namespace

py::custom_type_setup VisibleCycles() {
  return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject& type = heap_type->ht_type;
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = &Traverse;
    type.tp_clear = &Clear;
    type.tp_dealloc = &Deallocate;
  });
}

}  // namespace varve::python
