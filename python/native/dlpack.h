// The part of the DLPack ABI (version 0) that is needed to read tensors of other libraries: names
// and layout are those of its specification. Data only.

#ifndef VARVE_PYTHON_NATIVE_DLPACK_H_
#define VARVE_PYTHON_NATIVE_DLPACK_H_

#include <cstdint>

namespace varve::python {

inline constexpr int32_t kDlpackCpu = 1;  // device types
inline constexpr int32_t kDlpackPinned = 3;

inline constexpr uint8_t kDlpackFloat = 2;  // type codes
inline constexpr uint8_t kDlpackBfloat = 4;

struct DlpackDevice {
  int32_t type;
  int32_t id;
};

struct DlpackType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DlpackTensor {
  void* data;
  DlpackDevice device;
  int32_t ndim;
  DlpackType dtype;
  int64_t* shape;
  int64_t* strides;  // in values; null: dense
  uint64_t byte_offset;
};

// What a capsule named "dltensor" points to. Whoever takes it renames the capsule and calls
// `deleter` once.
struct DlpackManagedTensor {
  DlpackTensor tensor;
  void* manager;
  void (*deleter)(DlpackManagedTensor*);
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_DLPACK_H_
