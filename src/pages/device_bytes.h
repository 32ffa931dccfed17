// DeviceBytes: copies for page memory that the host cannot address. A back end on another device
// has one; a store without one has pages that are read and written where they lie.
//
// Copies are in order with everything else that the back end does with the bytes. On return the
// host's side of a copy may be used again. One thread at a time.

#ifndef VARVE_PAGES_DEVICE_BYTES_H_
#define VARVE_PAGES_DEVICE_BYTES_H_

#include <cstddef>

#include "varve/status.h"

namespace varve {

class DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  virtual Status ToHost(const std::byte* from, size_t bytes, std::byte* to) = 0;
  virtual Status FromHost(const std::byte* from, size_t bytes, std::byte* to) = 0;
  // From one place on the device to another.
  virtual Status Copy(const std::byte* from, size_t bytes, std::byte* to) = 0;
};

}  // namespace varve

#endif  // VARVE_PAGES_DEVICE_BYTES_H_
