// One table of plane decoders per instruction set; private to src/kernels.

#ifndef VARVE_KERNELS_EXPONENT_PLANES_TABLES_H_
#define VARVE_KERNELS_EXPONENT_PLANES_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/exponent_planes.h"

namespace varve {

// 64 bytes that are all this number, aligned. They lie in memory, in another file than their users:
// a constant would be moved to a general register and spread over a vector anew for each block.
struct PlaneNumbers {
  alignas(64) uint8_t bytes[256][64];
};
extern const PlaneNumbers kPlaneNumbers;
inline const uint8_t* PlaneBytes(int number) {
  return kPlaneNumbers.bytes[static_cast<uint8_t>(number)];
}

// Whether a level of so many bytes ends at this bit: nothing is left but zeros in its last byte.
inline bool EndsAt(const uint8_t* level, size_t bytes, size_t bit) {
  return CeilDiv(bit, 8) == bytes && (bit % 8 == 0 || level[bit / 8] >> bit % 8 == 0);
}

// Best last, named as those of SimdKernels().
std::vector<const PlaneKernels*> SimdPlaneKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_EXPONENT_PLANES_TABLES_H_
