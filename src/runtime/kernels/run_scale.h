// The packed run scales of Q4_K and Q5_K blocks, one at a time: for the specification.

#ifndef VARVE_RUNTIME_KERNELS_RUN_SCALE_H_
#define VARVE_RUNTIME_KERNELS_RUN_SCALE_H_

#include <cstdint>

namespace varve {

// Scale and minimum of run j (of eight) from the 12 bytes of Q4_K and Q5_K, 6 bits each.
inline void UnpackRunScale(const uint8_t* packed, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *min = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
}

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_RUN_SCALE_H_
