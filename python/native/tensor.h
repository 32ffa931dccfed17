// Tensor: numbers that belong to a Python object, seen without a copy.
//
// Anything with the buffer protocol (NumPy) or DLPack (torch, JAX) will do: f32, f16, bf16. NumPy
// has no bf16, so arrays of uint16 are taken as the bits of one. The last dimension must be dense;
// the others have any strides. A Tensor is used under the GIL and while its object lives; its
// pointer may be read without the GIL.
//
// A tensor on a GPU belongs to a stream. Where its library tells the one that it works on (torch),
// stream() has it, and the cache is to go on there. Otherwise the library has been asked, as DLPack
// wants it, to let the cache's stream wait for what it has under way.

#ifndef VARVE_PYTHON_NATIVE_TENSOR_H_
#define VARVE_PYTHON_NATIVE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "varve/tensor.h"

namespace varve::python {

// Where a cache works. Streams are numbered as in DLPack: 1 is the default one of CUDA.
struct Place {
  Device device = Device::kCpu;
  int index = 0;         // of the GPU
  uintptr_t stream = 0;  // 0: none, on the CPU

  std::string name() const {
    return device == Device::kCpu ? "cpu" : "cuda:" + std::to_string(index);
  }
};
inline constexpr uintptr_t kDefaultStream = 1;
inline constexpr uintptr_t kThreadStream = 2;  // cudaStreamPerThread

// "cpu", "cuda" or "cuda:1", as text or torch.device; others are refused. "cuda" is torch's current
// GPU, where torch has been imported, or the first one. stream: 0 is 1.
Place PlaceOf(const pybind11::handle& device, uintptr_t stream);

// Whether an object's numbers lie in the host's memory, as far as it says where they lie.
bool IsOnHost(const pybind11::handle& object);

class Tensor {
 public:
  // `what` names the argument in messages. Refuses what is neither in the host's memory nor where
  // `place` is.
  static Tensor Read(const pybind11::handle& object, const char* what, const Place& place);
  // Memory that will be written to; a read-only array is refused.
  static Tensor Write(const pybind11::handle& object, const char* what, const Place& place);

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  // That its library works on; nullopt in the host's memory, and where the library does not tell.
  std::optional<uintptr_t> stream() const { return stream_; }
  // Refuses another place than that of `other`.
  void ExpectBeside(const Tensor& other) const;
  // Refuses another number of dimensions, and sizes other than those given; -1 is any.
  void Expect(const std::vector<int64_t>& sizes, const char* names) const;
  // A dimension that is not there raises IndexError.
  int64_t size(int dimension) const { return shape_.at(static_cast<size_t>(dimension)); }
  // In values. Of a dimension of one value, whatever is harmless.
  ptrdiff_t stride(int dimension) const { return strides_.at(static_cast<size_t>(dimension)); }
  // The value at `index` of the first dimension; the others at 0. With a second index likewise.
  std::byte* at(int64_t index, int64_t second = 0, int second_dimension = 1) const;
  std::byte* data() const { return data_; }
  bool is_empty() const;
  bool is_dense() const;

 private:
  static Tensor Open(const pybind11::handle& object, const char* what, const Place& place,
                     bool writable);
  bool OpenExchange(const pybind11::handle& object, const Place& place);
  bool OpenBuffer(const pybind11::handle& object, bool writable);
  void OpenDlpack(const pybind11::handle& object, const Place& place);
  void TakeView(const struct DlpackTensor& view, const Place& place);
  void CheckStrides() const;

  const char* what_ = "";
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Device device_ = Device::kCpu;
  std::optional<uintptr_t> stream_;
  std::vector<int64_t> shape_;
  std::vector<ptrdiff_t> strides_;
  std::shared_ptr<void> owner_;
};

// Bytes of a value.
size_t BytesOf(DType dtype);

// An uninitialised array of the library that `like` comes from (torch or NumPy), and of its type.
// Refuses arrays of other libraries on a GPU: the caller has to bring `out`.
pybind11::object EmptyLike(const pybind11::handle& like, const std::vector<int64_t>& shape);
// An uninitialised NumPy array of f32.
pybind11::object EmptyFloats(const std::vector<int64_t>& shape);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_TENSOR_H_
