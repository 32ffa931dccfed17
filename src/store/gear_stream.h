// One byte stream of the "gear predictive" format: a predictor, then a back end.
//
// The format is another system's, byte for byte, for reading and writing its frames:
//   [1 B mode][1 B codec][4 B raw_len][4 B payload_len][payload]        numbers little-endian
// Modes are predictors: raw (0), delta_seq (1): byte minus the byte before, xor_seq (2): the same
// with exclusive or, pair_delta (3): of each two neighbours the right one becomes right minus left.
// Codecs: RLE (0) and zstd (1). Functions are pure; nothing that is read is trusted.

#ifndef VARVE_STORE_GEAR_STREAM_H_
#define VARVE_STORE_GEAR_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_io.h"
#include "varve/status.h"

namespace varve::store {

enum class GearPredictor : uint8_t { kRaw = 0, kDeltaSeq = 1, kXorSeq = 2, kPairDelta = 3 };
enum class GearCodec : uint8_t { kRle = 0, kZstd = 1 };

inline constexpr size_t kGearStreamHeaderBytes = 10;
// A stream that claims to be longer than this is refused before anything is allocated.
inline constexpr size_t kMaxGearStreamBytes = size_t{1} << 30;

// What an encoder tries.
struct GearPredictorSet {
  std::vector<GearPredictor> predictors;
  bool zstd = true;  // false: RLE alone

  // What the original tries for K and for V.
  static GearPredictorSet Keys();
  static GearPredictorSet Values();
};
// "raw,delta_seq,xor_seq,pair_delta"; refuses other names and an empty list.
Result<GearPredictorSet> ParseGearPredictors(std::string_view text);

// Bytes after or before prediction, same length.
std::vector<std::byte> GearPredict(GearPredictor predictor, std::span<const std::byte> bytes);
void GearUnpredict(GearPredictor predictor, std::span<std::byte> bytes);

// Control byte c of 0 … 127: c + 1 literals follow. Of 128 … 255: the next byte stands for
// (c & 127) + 4 of it.
std::vector<std::byte> GearRleEncode(std::span<const std::byte> bytes);
// Must give exactly out.size() bytes from all of `payload`.
Status GearRleDecode(std::span<const std::byte> payload, std::span<std::byte> out);

// Tries every predictor of the set with every back end and appends the smallest stream; of equals,
// the first.
void AppendGearStream(std::span<const std::byte> bytes, const GearPredictorSet& set,
                      std::vector<std::byte>& out);
// Reads one stream that stands for exactly `raw_bytes` bytes.
Status ReadGearStream(ByteReader& reader, size_t raw_bytes, std::vector<std::byte>& out);

}  // namespace varve::store

#endif  // VARVE_STORE_GEAR_STREAM_H_
