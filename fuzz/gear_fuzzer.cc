// Gear frames from strangers, and round trips of anything. Input: a byte (bit 0: words of 32 bits,
// bit 1: encode the rest rather than decode it), then bytes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "store/gear_frame.h"

namespace varve::store {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> rest(bytes + 1, bytes + size);
  const size_t width = (data[0] & 1) != 0 ? 4 : 2;
  if ((data[0] & 2) == 0) {
    const auto words = GearDecode(rest, width, size_t{1} << 20);
    if (!words.ok()) {
      Require(words.status().code() == StatusCode::kDataLoss);
      return 0;
    }
    rest = *words;
  }
  rest.resize(rest.size() / width * width);
  const auto frame = GearEncode(rest, width, GearPredictorSet::Keys());
  Require(frame.ok());
  const auto back = GearDecode(*frame, width, rest.size());
  Require(back.ok() && *back == rest);
  return 0;
}

}  // namespace varve::store
