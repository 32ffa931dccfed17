// The bytes of an object with the buffer protocol: an image of pages, the content of a file. They
// must lie side by side, as the library reads them; an array with gaps (`image[::2]`,
// `image[::-1]`) is refused. Holds the object.

#ifndef VARVE_PYTHON_NATIVE_BYTES_VIEW_H_
#define VARVE_PYTHON_NATIVE_BYTES_VIEW_H_

#include <cstddef>
#include <span>

#include <pybind11/pybind11.h>

namespace varve::python {

class BytesView {
 public:
  // `what` names the argument in messages.
  BytesView(const pybind11::buffer& object, const char* what);
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(info_.ptr),
            static_cast<size_t>(info_.size) * static_cast<size_t>(info_.itemsize)};
  }

 private:
  pybind11::buffer_info info_;
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_BYTES_VIEW_H_
