// The part of the DLPack ABI that is needed to read tensors of other libraries: names and layout
// are those of its specification. Capsules are version 0. The table of C functions, which a type
// has since version 1.3, reads a tensor without a capsule and tells the stream that its library
// works on.

#ifndef VARVE_PYTHON_NATIVE_DLPACK_H_
#define VARVE_PYTHON_NATIVE_DLPACK_H_

#include <cstdint>

namespace varve::python {

inline constexpr int32_t kDlpackCpu = 1;  // device types
inline constexpr int32_t kDlpackCuda = 2;
inline constexpr int32_t kDlpackPinned = 3;
inline constexpr int32_t kDlpackManaged = 13;  // of CUDA, on any device

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

// What a capsule named "dlpack_exchange_api", attribute __dlpack_c_exchange_api__ of a type, points
// to. It stays for as long as the process. Functions give 0, or -1 with a Python exception set.
struct DlpackExchange {
  struct Header {
    uint32_t major;
    uint32_t minor;
    const Header* older;  // or null
  };
  Header header;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  // Fills *out with a view that is valid while the object lives; may be null.
  int (*view_of_object)(void* object, DlpackTensor* out);
  // The stream that the library gives its work to now; null is the default one.
  int (*current_stream)(int32_t device_type, int32_t device, void** stream);
};
inline constexpr uint32_t kDlpackExchangeMajor = 1;

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_DLPACK_H_
