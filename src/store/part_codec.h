// Pack and Unpack: the K or V bytes of one page as fewer bytes, and back, bit for bit.
//
// A packed part describes itself: mode, shape, the hash of the bytes that it stands for, and the
// hash of the dictionary that it needs, if any (docs/format/packed.md). It may refer to that
// dictionary, never to another page. Pack tries the modes that serve the goal and may pay, and
// takes the smallest result; a part that no mode makes smaller is stored as it is.
//
// Bytes that are read are not trusted: whatever they hold, Unpack writes only inside the buffer
// that it was given and returns a Status that names what is wrong. (After an error the buffer's
// content is undefined.) Functions are pure and may run concurrently.

#ifndef VARVE_STORE_PART_CODEC_H_
#define VARVE_STORE_PART_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "store/dictionary.h"
#include "store/gear_stream.h"
#include "store/pack_goal.h"
#include "store/part_image.h"
#include "varve/status.h"

namespace varve::store {

// Numbers are part of the format and never reused; below 16 are the predictors of the stream frame
// (gear_frame.h).
enum class PackMode : uint8_t {
  kRaw = 16,            // as it is
  kPairs = 17,          // floats: exponent pairs and raw bits
  kRowRefs = 18,        // rows that are in the dictionary or came before, and the others as pairs
  kBlocks = 19,         // blocks: scales as pairs; codes as they are, or through zstd
  kZstd = 20,           // bytes of elements apart, through zstd
  kRotatedRows = 21,    // K: rows of the dictionary, turned on, and the others as pairs
  kPlanes = 22,         // 16-bit floats: exponent planes and raw bits
  kRotatedPlanes = 23,  // as rotated rows, misses and others as planes
  kGear = 32,  // floats: a frame of the gear format (gear_part.h); PackGear alone writes it
};
std::string_view PackModeName(PackMode mode);

inline constexpr size_t kPackedHeaderBytes = 32;

// What a packed part says about itself.
struct PackedInfo {
  PackMode mode = PackMode::kRaw;
  PartShape shape;
  size_t unpacked_bytes = 0;     // = shape.Bytes()
  size_t packed_bytes = 0;       // header included
  uint64_t content_hash = 0;     // HashPart of the original
  uint64_t dictionary_hash = 0;  // 0: none
};

// Fails only on an invalid shape or a dictionary for another one. `dictionary` may be null.
Result<std::vector<std::byte>> Pack(const PartView& part, const Dictionary* dictionary,
                                    PackGoal goal = PackGoal::kSmall);

// The same with a gear frame, or raw where that is not smaller; block types and bytes as Pack does.
Result<std::vector<std::byte>> PackGear(const PartView& part, const GearPredictorSet& set);

// Checks the header, not the payload. The bytes must be one packed part and no more.
Result<PackedInfo> ReadPackedInfo(std::span<const std::byte> packed);
Result<size_t> UnpackedSize(std::span<const std::byte> packed);

struct UnpackOptions {
  // Compare the hash of what came out with the one stored. Without it, changed packed bytes may
  // unpack to wrong bytes without an error.
  bool verify = true;
};

// Writes the strips to `out`. A caller that expects a certain shape compares ReadPackedInfo first.
// `dictionary` may be null if the part names none; any other than the one it names is refused.
Status Unpack(std::span<const std::byte> packed, const Dictionary* dictionary,
              const PartBuffer& out, const UnpackOptions& options = UnpackOptions());

}  // namespace varve::store

#endif  // VARVE_STORE_PART_CODEC_H_
