// Tensor: numbers that belong to a Python object, seen without a copy.
//
// Anything with the buffer protocol (NumPy) or DLPack (torch, JAX) will do: f32, f16, bf16. NumPy
// has no bf16, so arrays of uint16 are taken as the bits of one. The last dimension must be dense;
// the others have any strides. A Tensor keeps the object's memory alive and is used under the GIL;
// its pointer may be read without it.

#ifndef VARVE_PYTHON_NATIVE_TENSOR_H_
#define VARVE_PYTHON_NATIVE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "varve/tensor.h"

namespace varve::python {

class Tensor {
 public:
  // `what` names the argument in messages.
  static Tensor Read(const pybind11::handle& object, const std::string& what);
  // Memory that will be written to; a read-only array is refused.
  static Tensor Write(const pybind11::handle& object, const std::string& what);

  DType dtype() const { return dtype_; }
  // Refuses another number of dimensions, and sizes other than those given; -1 is any.
  void Expect(const std::vector<int64_t>& sizes, const char* names) const;
  int64_t size(int dimension) const { return shape_[static_cast<size_t>(dimension)]; }
  // In values. Of a dimension of one value, whatever is harmless.
  ptrdiff_t stride(int dimension) const { return strides_[static_cast<size_t>(dimension)]; }
  // The value at `index` of the first dimension; the others at 0. With a second index likewise.
  std::byte* at(int64_t index, int64_t second = 0, int second_dimension = 1) const;
  std::byte* data() const { return data_; }
  bool is_empty() const;
  bool is_dense() const;

 private:
  static Tensor Open(const pybind11::handle& object, const std::string& what, bool writable);
  bool OpenBuffer(const pybind11::handle& object, bool writable);
  void OpenDlpack(const pybind11::handle& object);
  void CheckStrides() const;

  std::string what_;
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  std::vector<ptrdiff_t> strides_;
  std::shared_ptr<void> owner_;
};

// Bytes of a value.
size_t BytesOf(DType dtype);

// An uninitialised array of the library that `like` comes from (torch or NumPy), and of its type.
pybind11::object EmptyLike(const pybind11::handle& like, const std::vector<int64_t>& shape);
// An uninitialised NumPy array of f32.
pybind11::object EmptyFloats(const std::vector<int64_t>& shape);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_TENSOR_H_
