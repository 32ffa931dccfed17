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

DType TypeOfFormat(std::string_view format, const char* what) {
  if (!format.empty() && (format[0] == '<' || format[0] == '=' || format[0] == '@')) {
    format.remove_prefix(1);
  }
  if (format == "f") return DType::kF32;
  if (format == "e") return DType::kF16;
  if (format == "H") return DType::kBF16;
  Refuse(std::string(what) + ": type '" + std::string(format) +
         "' has no rung; use float32, float16, or uint16 for the bits of bfloat16");
}

DType TypeOfDlpack(const DlpackType& type, const char* what) {
  if (type.lanes == 1 && type.code == kDlpackFloat && type.bits == 32) return DType::kF32;
  if (type.lanes == 1 && type.code == kDlpackFloat && type.bits == 16) return DType::kF16;
  if (type.lanes == 1 && type.code == kDlpackBfloat && type.bits == 16) return DType::kBF16;
  Refuse(std::string(what) + ": numbers of " + std::to_string(type.bits) + " bits (DLPack code " +
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

// The table of functions of a type, or null. The last type that had one is remembered.
const DlpackExchange* ExchangeOf(PyTypeObject* type) {
  static PyTypeObject* last_type = nullptr;
  static const DlpackExchange* last = nullptr;
  if (type == last_type) return last;
  const py::handle handle(reinterpret_cast<PyObject*>(type));
  const py::object capsule = py::getattr(handle, "__dlpack_c_exchange_api__", py::none());
  if (capsule.is_none()) return nullptr;
  const auto* table = static_cast<const DlpackExchange*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) throw py::error_already_set();
  if (table->header.major != kDlpackExchangeMajor || table->view_of_object == nullptr) {
    return nullptr;
  }
  Py_INCREF(type);
  Py_XDECREF(last_type);
  last_type = type;
  last = table;
  return table;
}

// The stream that torch works on, where it is too old to have a table of functions.
std::optional<uintptr_t> StreamOfTorch(const py::handle& tensor, int index) {
  if (!py::str(py::type::of(tensor).attr("__module__")).equal(py::str("torch"))) return {};
  const py::object stream = py::module_::import("torch").attr("cuda").attr("current_stream")(index);
  const auto handle = stream.attr("cuda_stream").cast<uintptr_t>();
  return handle == 0 ? kDefaultStream : handle;
}

// The GPU that "cuda" means in a program that uses torch; without it the first one.
int CurrentGpu() {
  const py::object torch = py::module_::import("sys").attr("modules").attr("get")("torch");
  if (!py::hasattr(torch, "cuda")) return 0;
  const py::object cuda = torch.attr("cuda");
  return cuda.attr("is_available")().cast<bool>() ? cuda.attr("current_device")().cast<int>() : 0;
}

py::tuple ShapeTuple(const std::vector<int64_t>& shape) {
  py::tuple sizes(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) sizes[i] = shape[i];
  return sizes;
}

}  // namespace

Place PlaceOf(const py::handle& device, uintptr_t stream) {
  const std::string name = py::str(device);
  if (name == "cpu") {
    if (stream != 0) Refuse("stream: a cache on the CPU has none; pass device=\"cuda\"");
    return {};
  }
  if (stream == kThreadStream) {
    Refuse(
        "stream: 2 is another stream in every thread, so calls of two threads would have no order; "
        "pass the handle of a stream");
  }
  Place place = {Device::kCuda, 0, stream == 0 ? kDefaultStream : stream};
  if (name == "cuda") {
    place.index = CurrentGpu();
    return place;
  }
  const std::string digits = name.rfind("cuda:", 0) == 0 ? name.substr(5) : "";
  if (digits.empty() || digits.size() > 4 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    Refuse("device: '" + name + "' is neither 'cpu' nor 'cuda' nor 'cuda:1'");
  }
  place.index = std::stoi(digits);
  return place;
}

bool IsOnHost(const py::handle& object) {
  if (!py::hasattr(object, "__dlpack_device__")) return true;  // the buffer protocol, or nothing
  const auto device = object.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  return device.first == kDlpackCpu || device.first == kDlpackPinned;
}

Tensor Tensor::Read(const py::handle& object, const char* what, const Place& place) {
  return Open(object, what, place, false);
}

Tensor Tensor::Write(const py::handle& object, const char* what, const Place& place) {
  return Open(object, what, place, true);
}

Tensor Tensor::Open(const py::handle& object, const char* what, const Place& place, bool writable) {
  Tensor tensor;
  tensor.what_ = what;
  if (!tensor.OpenExchange(object, place) && !tensor.OpenBuffer(object, writable)) {
    if (!py::hasattr(object, "__dlpack__")) {
      Refuse(std::string(what) + ": " + std::string(py::str(py::type::of(object))) +
             " has neither the buffer protocol nor DLPack; pass a NumPy array or a torch tensor");
    }
    tensor.OpenDlpack(object, place);
  }
  tensor.CheckStrides();
  return tensor;
}

bool Tensor::OpenExchange(const py::handle& object, const Place& place) {
  const DlpackExchange* exchange = ExchangeOf(Py_TYPE(object.ptr()));
  if (exchange == nullptr) return false;
  DlpackTensor view;
  if (exchange->view_of_object(object.ptr(), &view) != 0) throw py::error_already_set();
  TakeView(view, place);
  if (device_ == Device::kCpu) return true;
  void* stream = nullptr;
  if (exchange->current_stream(kDlpackCuda, place.index, &stream) != 0) {
    throw py::error_already_set();
  }
  stream_ = stream == nullptr ? kDefaultStream : reinterpret_cast<uintptr_t>(stream);
  return true;
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
    if (buffer->strides[i] % value_bytes != 0)
      Refuse(std::string(what_) + ": values are not aligned");
    strides_.push_back(buffer->strides[i] / value_bytes);
  }
  return true;
}

void Tensor::OpenDlpack(const py::handle& object, const Place& place) {
  const auto device = object.attr("__dlpack_device__")().cast<std::pair<int, int>>();
  const py::object export_capsule = object.attr("__dlpack__");
  // What is elsewhere is refused below, and waits for nobody.
  const bool on_gpu = (device.first == kDlpackCuda && device.second == place.index) ||
                      device.first == kDlpackManaged;
  const bool streams = on_gpu && place.device == Device::kCuda;
  if (streams) stream_ = StreamOfTorch(object, place.index);
  const int64_t waiting = stream_ ? -1 : static_cast<int64_t>(place.stream);
  const py::capsule capsule =
      streams ? export_capsule(py::arg("stream") = waiting) : export_capsule();
  auto* managed =
      static_cast<DlpackManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw py::error_already_set();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  owner_ = OwnedDlpack(managed);
  TakeView(managed->tensor, place);
}

void Tensor::TakeView(const DlpackTensor& view, const Place& place) {
  const int32_t kind = view.device.type;
  if (kind != kDlpackCpu && kind != kDlpackPinned) {
    const bool on_cuda = kind == kDlpackCuda || kind == kDlpackManaged;
    if (!on_cuda) {
      Refuse(std::string(what_) + ": the tensor is on a device of another kind (DLPack type " +
             std::to_string(kind) + "); use .cpu()");
    }
    const std::string name = "cuda:" + std::to_string(view.device.id);
    if (place.device == Device::kCpu) {
      Refuse(std::string(what_) + ": the tensor is on " + name +
             ", the cache in the memory of the CPU; make the cache with device=\"" + name +
             "\", or use .cpu()");
    }
    if (kind == kDlpackCuda && view.device.id != place.index) {
      Refuse(std::string(what_) + ": the tensor is on " + name + ", the cache on " + place.name() +
             "; use .to(\"" + place.name() + "\")");
    }
    device_ = Device::kCuda;
  }
  dtype_ = TypeOfDlpack(view.dtype, what_);
  data_ = static_cast<std::byte*>(view.data) + view.byte_offset;
  shape_.assign(view.shape, view.shape + view.ndim);
  strides_.resize(shape_.size());
  ptrdiff_t dense = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    strides_[i] = view.strides == nullptr ? dense : static_cast<ptrdiff_t>(view.strides[i]);
    dense *= static_cast<ptrdiff_t>(shape_[i]);
  }
}

void Tensor::ExpectBeside(const Tensor& other) const {
  if (device_ == other.device_) return;
  const auto where = [](Device device) {
    return std::string(device == Device::kCpu ? "in the memory of the CPU" : "on the GPU");
  };
  Refuse(std::string(what_) + ": is " + where(device_) + ", but " + other.what_ + " is " +
         where(other.device_) + "; bring them to one place");
}

// The library reads a stride of 0 as dense, so values that are repeated by a stride are refused.
void Tensor::CheckStrides() const {
  if (is_empty()) return;  // no value is read
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] > 1 && strides_[i] == 0) {
      Refuse(std::string(what_) + ": dimension " + std::to_string(i) +
             " is repeated by a stride of 0; make the array contiguous");
    }
  }
  if (!shape_.empty() && shape_.back() > 1 && strides_.back() != 1) {
    Refuse(std::string(what_) + ": the last dimension has a stride of " +
           std::to_string(strides_.back()) + " values, not 1; make the array contiguous");
  }
}

void Tensor::Expect(const std::vector<int64_t>& sizes, const char* names) const {
  bool fits = shape_.size() == sizes.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] < 0 || sizes[i] == shape_[i];
  if (!fits) {
    Refuse(std::string(what_) + ": shape " + ShapeText(shape_) + " is not " + ShapeText(sizes) +
           ", which is " + names);
  }
}

std::byte* Tensor::at(int64_t index, int64_t second, int second_dimension) const {
  ptrdiff_t offset = static_cast<ptrdiff_t>(index) * stride(0);
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
  if (!IsOnHost(like)) Refuse("out: pass an array of your library on the GPU");
  const py::module_ numpy = py::module_::import("numpy");
  return numpy.attr("empty")(ShapeTuple(shape), numpy.attr("asarray")(like).attr("dtype"));
}

py::object EmptyFloats(const std::vector<int64_t>& shape) {
  const py::module_ numpy = py::module_::import("numpy");
  return numpy.attr("empty")(ShapeTuple(shape), "float32");
}

}  // namespace varve::python
