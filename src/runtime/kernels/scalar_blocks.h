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

// Scale of the 16 values from 16 * j on, from the 12 bytes of Q3_K: 6 bits, less 32. Low nibbles in
// eight bytes, first of scales 0-7, then of 8-15; high bit pairs in four.
inline int UnpackHalfScale(const uint8_t* packed, int j) {
  const int low = packed[j % 8] >> (j / 8 * 4) & 15;
  const int high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

// Two bits of value i of a block of 256, from 64 bytes: each half of the block (128 values) has 32,
// and bits 2j and 2j + 1 of byte k of them belong to value k of run j.
inline int BitPair(const uint8_t* packed, int i) {
  return packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// What the nibbles of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kNibbleValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

// The 32 integers of 16 bytes of such nibbles: the low ones are values 0-15, the high ones 16-31.
inline void LookUpNibbles(const uint8_t* nibbles, int16_t* values) {
  for (int i = 0; i < 16; ++i) {
    values[i] = kNibbleValues[nibbles[i] & 15];
    values[i + 16] = kNibbleValues[nibbles[i] >> 4];
  }
}

// Scale of run j (of eight) of IQ4_XS: 6 bits, less 32. The high bits of all are the u16 at byte 2,
// the low nibbles four bytes behind it.
inline int UnpackLookupScale(const uint8_t* block, int j) {
  const int high = block[2 + j / 4] >> (j % 4 * 2) & 3;
  const int low = block[4 + j / 2] >> (j % 2 * 4) & 15;
  return (low | high << 4) - 32;
}

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_SCALAR_BLOCKS_H_
