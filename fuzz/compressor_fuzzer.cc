// Any bytes as a compressor file, in one of a few orders of its blocks by the first byte. What
// parses is a compressor, and comes back from its own bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "fold/compressor_format.h"
#include "varve/compressor.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr const char* kParts[] = {"", "iv,ik,tv,tk", "tv", "ik,tk"};
  constexpr const char* kSlots[] = {"", "6,3,0", "3,0,6", "0,6,3", "3,0", "0"};
  const varve::Result<varve::CompressorOrder> order =
      varve::ParseCompressorOrder(kParts[data[0] % 4], kSlots[data[0] / 4 % 6]);
  Require(order.ok());
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(begin + 1, begin + size);
  std::optional<varve::CompressorOrder> given;
  if (data[0] % 24 != 0) given = *order;
  const auto compressor = varve::ParseCompressor(bytes, "fuzz", given);
  if (!compressor.ok()) {
    Require(compressor.status().message().size() > 6);
    return 0;
  }
  Require(varve::CheckCompressor(*compressor).ok());
  // The order goes into the file: a reader need not be told.
  const std::vector<std::byte> written =
      varve::SerializeCompressor(*compressor, given.value_or(varve::CompressorOrder()));
  const auto again = varve::ParseCompressor(written, "fuzz");
  Require(again.ok() && *again == *compressor);
  Require(varve::CompressorHash(*again) == varve::CompressorHash(*compressor));
  return 0;
}
