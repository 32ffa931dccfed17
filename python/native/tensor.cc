#include "tensor.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dlpack.h"
#include "errors.h"

namespace py = pybind11;

namespace varve::python {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "any" : std::to_string(shape[i]);
  }
  return text + "]";
}

DType TypeOfFormat(std::string_view format, const std::string& what) {
  if (!format.empty() && (format[0] == '<' || format[0] == '=' || format[0] == '@')) {
    format.remove_prefix(1);
  }
  if (format == "f") return DType::kF32;
  if (format == "e") return DType::kF16;
  if (format == "H") return DType::kBF16;
  Refuse(what + ": type '" + std::string(format) +
         "' has no rung; use float32, float16, or uint16 for the bits of bfloat16");
}

DType TypeOfDlpack(const DlpackType& type, const std::string& what) {
  if (type.lanes == 1 && type.code == kDlpackFloat && type.bits == 32) return DType::kF32;
  if (type.lanes == 1 && type.code == kDlpackFloat && type.bits == 16) return DType::kF16;
  if (type.lanes == 1 && type.code == kDlpackBfloat && type.bits == 16) return DType::kBF16;
  Refuse(what + ": numbers of " + std::to_string(type.bits) + " bits (DLPack code " +
         std::to_string(type.code) + ") have no rung; use float32, float16 or bfloat16");
}

// Releases under the GIL: the owner may be a Python object.
std::shared_ptr<void> OwnedBuffer(Py_buffer* view) {
  return {view, [](void* pointer) {
            const py::gil_scoped_acquire gil;
            auto* buffer = static_cast<Py_buffer*>(pointer);
            PyBuffer_Release(buffer);
            delete buffer;
          }};
}

std::shared_ptr<void> OwnedDlpack(DlpackManagedTensor* managed) {
  return {managed, [](void* pointer) {
            const py::gil_scoped_acquire gil;
            auto* tensor = static_cast<DlpackManagedTensor*>(pointer);
            if (tensor->deleter != nullptr) tensor->deleter(tensor);
          }};
}

py::tuple ShapeTuple(const std::vector<int64_t>& shape) {
  py::tuple sizes(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) sizes[i] = shape[i];
  return sizes;
}

}  // namespace

Tensor Tensor::Read(const py::handle& object, const std::string& what) {
  return Open(object, what, false);
}

Tensor Tensor::Write(const py::handle& object, const std::string& what) {
  return Open(object, what, true);
}

Tensor Tensor::Open(const py::handle& object, const std::string& what, bool writable) {
  Tensor tensor;
  tensor.what_ = what;
  if (!tensor.OpenBuffer(object, writable)) {
    if (!py::hasattr(object, "__dlpack__")) {
      Refuse(what + ": " + std::string(py::str(py::type::of(object))) +
             " has neither the buffer protocol nor DLPack; pass a NumPy array or a torch tensor");
    }
    tensor.OpenDlpack(object);
  }
  tensor.CheckStrides();
  return tensor;
}

bool Tensor::OpenBuffer(const py::handle& object, bool writable) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  auto view = std::make_unique<Py_buffer>();
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), view.get(), flags) != 0) throw py::error_already_set();
  Py_buffer* buffer = view.release();
  owner_ = OwnedBuffer(buffer);
  dtype_ = TypeOfFormat(buffer->format == nullptr ? "B" : buffer->format, what_);
  data_ = static_cast<std::byte*>(buffer->buf);
  const auto value_bytes = static_cast<ptrdiff_t>(BytesOf(dtype_));
  for (int i = 0; i < buffer->ndim; ++i) {
    shape_.push_back(buffer->shape[i]);
    if (buffer->strides[i] % value_bytes != 0) Refuse(what_ + ": values are not aligned");
    strides_.push_back(buffer->strides[i] / value_bytes);
  }
  return true;
}

void Tensor::OpenDlpack(const py::handle& object) {
  const py::capsule capsule = py::reinterpret_borrow<py::capsule>(object.attr("__dlpack__")());
  auto* managed =
      static_cast<DlpackManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw py::error_already_set();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  owner_ = OwnedDlpack(managed);
  const DlpackTensor& tensor = managed->tensor;
  if (tensor.device.type != kDlpackCpu && tensor.device.type != kDlpackPinned) {
    Refuse(what_ + ": the tensor is on a device (DLPack type " +
           std::to_string(tensor.device.type) +
           "); caches of this build are in the memory of the CPU: use .cpu()");
  }
  dtype_ = TypeOfDlpack(tensor.dtype, what_);
  data_ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  shape_.assign(tensor.shape, tensor.shape + tensor.ndim);
  strides_.resize(shape_.size());
  ptrdiff_t dense = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    strides_[i] = tensor.strides == nullptr ? dense : static_cast<ptrdiff_t>(tensor.strides[i]);
    dense *= static_cast<ptrdiff_t>(shape_[i]);
  }
}

// The library reads a stride of 0 as dense, so values that are repeated by a stride are refused.
void Tensor::CheckStrides() const {
  if (is_empty()) return;  // no value is read
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] > 1 && strides_[i] == 0) {
      Refuse(what_ + ": dimension " + std::to_string(i) +
             " is repeated by a stride of 0; make the array contiguous");
    }
  }
  if (!shape_.empty() && shape_.back() > 1 && strides_.back() != 1) {
    Refuse(what_ + ": the last dimension has a stride of " + std::to_string(strides_.back()) +
           " values, not 1; make the array contiguous");
  }
}

void Tensor::Expect(const std::vector<int64_t>& sizes, const char* names) const {
  bool fits = shape_.size() == sizes.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] < 0 || sizes[i] == shape_[i];
  if (!fits) {
    Refuse(what_ + ": shape " + ShapeText(shape_) + " is not " + ShapeText(sizes) + ", which is " +
           names);
  }
}

std::byte* Tensor::at(int64_t index, int64_t second, int second_dimension) const {
  ptrdiff_t offset = static_cast<ptrdiff_t>(index) * strides_[0];
  if (second != 0) offset += static_cast<ptrdiff_t>(second) * stride(second_dimension);
  return data_ + offset * static_cast<ptrdiff_t>(BytesOf(dtype_));
}

bool Tensor::is_empty() const { return std::find(shape_.begin(), shape_.end(), 0) != shape_.end(); }

bool Tensor::is_dense() const {
  if (is_empty()) return true;
  ptrdiff_t dense = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] > 1 && strides_[i] != dense) return false;
    dense *= static_cast<ptrdiff_t>(shape_[i]);
  }
  return true;
}

size_t BytesOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

py::object EmptyLike(const py::handle& like, const std::vector<int64_t>& shape) {
  if (py::hasattr(like, "new_empty")) return like.attr("new_empty")(ShapeTuple(shape));
  const py::module_ numpy = py::module_::import("numpy");
  return numpy.attr("empty")(ShapeTuple(shape), numpy.attr("asarray")(like).attr("dtype"));
}

py::object EmptyFloats(const std::vector<int64_t>& shape) {
  const py::module_ numpy = py::module_::import("numpy");
  return numpy.attr("empty")(ShapeTuple(shape), "float32");
}

}  // namespace varve::python
