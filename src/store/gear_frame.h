// Frames of the "gear predictive" format: 16-bit or 32-bit words as byte lanes, one stream each.
//   16 bits: [4 B word_count][low bytes][high bytes]      32 bits: [4 B word_count][lane 0]…[lane
//   3]
// Streams are those of gear_stream.h. f16 and bf16 alike are words of 16 bits.

#ifndef VARVE_STORE_GEAR_FRAME_H_
#define VARVE_STORE_GEAR_FRAME_H_

#include <cstddef>
#include <span>
#include <vector>

#include "store/gear_stream.h"
#include "varve/status.h"

namespace varve::store {

// `bytes` holds words of `word_bytes` (2 or 4) bytes. Fails on another width, a broken word, and
// more words than a frame can count.
Result<std::vector<std::byte>> GearEncode(std::span<const std::byte> bytes, size_t word_bytes,
                                          const GearPredictorSet& set);

// The words of a frame, at most `max_bytes` of them: a frame of a few bytes may claim gigabytes,
// and with zstd may even hold them.
Result<std::vector<std::byte>> GearDecode(std::span<const std::byte> frame, size_t word_bytes,
                                          size_t max_bytes);

}  // namespace varve::store

#endif  // VARVE_STORE_GEAR_FRAME_H_
