// Any bytes as a compressor file, in one of a few orders of its blocks by the first byte. What
// parses is a compressor, and comes back from its own bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
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
  constexpr const char* kSlots[] = {"", "6,3,0", "3,0,6", "0,6,3"};
  const varve::Result<varve::CompressorOrder> order =
      varve::ParseCompressorOrder(kParts[data[0] % 4], kSlots[data[0] / 4 % 4]);
  Require(order.ok());
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(begin + 1, begin + size);
  const auto compressor = varve::ParseCompressor(bytes, "fuzz", *order);
  if (!compressor.ok()) {
    Require(compressor.status().message().size() > 6);
    return 0;
  }
  Require(varve::CheckCompressor(*compressor).ok());
  const std::vector<std::byte> written = varve::SerializeCompressor(*compressor, *order);
  // But for metadata, which is skipped.
  Require(written.size() <= bytes.size());
  if (written.size() == bytes.size()) Require(written == bytes);
  const auto again = varve::ParseCompressor(written, "fuzz", *order);
  Require(again.ok() && varve::SerializeCompressor(*again, *order) == written);
  Require(varve::CompressorHash(*again) == varve::CompressorHash(*compressor));
  return 0;
}
