// Fields of the block formats, one at a time: what the specification's two halves share.

#ifndef VARVE_RUNTIME_KERNELS_SCALAR_BLOCKS_H_
#define VARVE_RUNTIME_KERNELS_SCALAR_BLOCKS_H_

#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace varve {

inline float F16At(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return F16ToF32(bits);
}

// The 32 codes of a block of Q4_0, Q4_1, Q5_0 or Q5_1: f16 scale, (kMin: f16 minimum,) (kFifth: u32
// of fifth bits,) 16 bytes: the low nibbles are values 0-15, the high ones 16-31. Without a minimum
// the codes are centred.
template <bool kMin, bool kFifth>
void NibbleCodes(const uint8_t* block, int16_t* codes) {
  const uint8_t* at = block + (kMin ? 4 : 2);
  uint32_t fifth = 0;
  if (kFifth) {
    std::memcpy(&fifth, at, 4);
    at += 4;
  }
  const int centre = kMin ? 0 : kFifth ? 16 : 8;
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? at[i] & 15 : at[i - 16] >> 4;
    const int code = nibble | static_cast<int>((fifth >> i) & 1) << 4;
    codes[i] = static_cast<int16_t>(code - centre);
  }
}

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

#endif  // VARVE_RUNTIME_KERNELS_SCALAR_BLOCKS_H_
