#include "bytes_view.h"

#include <string>

#include "errors.h"

namespace varve::python {

BytesView::BytesView(const pybind11::buffer& object, const char* what) : info_(object.request()) {
  if (info_.size == 0) return;
  pybind11::ssize_t dense = info_.itemsize;
  for (size_t i = info_.shape.size(); i-- > 0;) {
    if (info_.shape[i] > 1 && info_.strides[i] != dense) {
      Refuse(std::string(what) + ": dimension " + std::to_string(i) + " has a stride of " +
             std::to_string(info_.strides[i]) + " bytes, not " + std::to_string(dense) +
             "; make the array contiguous");
    }
    dense *= info_.shape[i];
  }
}

}  // namespace varve::python
