// Limits of compressors. A shape within them has at most 2^30 numbers, so sizes in bytes fit 64
// bits with room.

#ifndef VARVE_FOLD_COMPRESSOR_LIMITS_H_
#define VARVE_FOLD_COMPRESSOR_LIMITS_H_

#include <cstdint>

namespace varve {

inline constexpr int kMaxCompressorLayers = 1024;
inline constexpr int kMaxCompressorHeads = 1024;
inline constexpr int kMinCompressorDim = 16;  // and a multiple of it
inline constexpr int kMaxCompressorDim = 512;
inline constexpr int kMinCompressorFactor = 2;
inline constexpr int kMaxCompressorFactor = 64;
inline constexpr int kMaxCompressorGroups = 1 << 24;  // of the threshold
// Of a block: the widest input that factor and head_dim allow. Hidden widths have the same limit.
inline constexpr int kMaxCompressorWidth = kMaxCompressorFactor * kMaxCompressorDim;

}  // namespace varve

#endif  // VARVE_FOLD_COMPRESSOR_LIMITS_H_
