// LaneType: what the bytes of a strip are to the lossless codec. The table of rungs names one per
// rung, the codec works by it; neither sees the other.

#ifndef VARVE_BASE_LANE_TYPE_H_
#define VARVE_BASE_LANE_TYPE_H_

#include <cstdint>

namespace varve {

// Numbers are part of the format. The rotated rungs q8_0r and q4_0r have the bytes of q8_0 and
// q4_0. kBytes is a strip that is taken as it is: any number of bytes.
enum class LaneType : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kQ8 = 3, kQ4 = 4, kBytes = 5 };

}  // namespace varve

#endif  // VARVE_BASE_LANE_TYPE_H_
