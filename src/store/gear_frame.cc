#include "store/gear_frame.h"

#include <fmt/format.h>

namespace varve::store {
namespace {

Status CheckWidth(size_t word_bytes) {
  if (word_bytes == 2 || word_bytes == 4) return Status();
  return InvalidArgument(fmt::format("gear frame: word_bytes {} is neither 2 nor 4", word_bytes));
}

}  // namespace

Result<std::vector<std::byte>> GearEncode(std::span<const std::byte> bytes, size_t word_bytes,
                                          const GearPredictorSet& set) {
  VARVE_RETURN_IF_ERROR(CheckWidth(word_bytes));
  if (set.predictors.empty()) return InvalidArgument("gear frame: 0 predictors");
  if (bytes.size() % word_bytes != 0) {
    return InvalidArgument(
        fmt::format("gear frame: {} bytes are not words of {}", bytes.size(), word_bytes));
  }
  const size_t words = bytes.size() / word_bytes;
  if (words > kMaxGearStreamBytes) {
    return InvalidArgument(fmt::format("gear frame: {} words > {}", words, kMaxGearStreamBytes));
  }
  std::vector<std::byte> out;
  AppendNumber(out, static_cast<uint32_t>(words));
  std::vector<std::byte> lane(words);
  for (size_t i = 0; i < word_bytes; ++i) {
    for (size_t w = 0; w < words; ++w) lane[w] = bytes[w * word_bytes + i];
    AppendGearStream(lane, set, out);
  }
  return out;
}

Result<std::vector<std::byte>> GearDecode(std::span<const std::byte> frame, size_t word_bytes,
                                          size_t max_bytes) {
  VARVE_RETURN_IF_ERROR(CheckWidth(word_bytes));
  ByteReader reader("gear frame", frame);
  uint32_t words = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("word_count", words));
  if (words > max_bytes / word_bytes) {
    return reader.Bad(fmt::format("word_count {} > {}", words, max_bytes / word_bytes));
  }
  std::vector<std::byte> out(words * word_bytes);
  std::vector<std::byte> lane;
  for (size_t i = 0; i < word_bytes; ++i) {
    VARVE_RETURN_IF_ERROR(ReadGearStream(reader, words, lane));
    for (size_t w = 0; w < words; ++w) out[w * word_bytes + i] = lane[w];
  }
  VARVE_RETURN_IF_ERROR(reader.Finish());
  return out;
}

}  // namespace varve::store
