// Whisper files of ggml from strangers: no bytes may crash the reader. What it takes must be a
// whole model: every tensor of the config, aligned, readable to its last byte, with finite values.
//
// The filters, which nothing reads, are 64 KB of a file: the input has them left out, and they are
// put in here.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/whisper/whisper_tensors.h"
#include "tests/whisper_files.h"

namespace {

constexpr size_t kFiltersAt = 56;
constexpr size_t kFilterBytes = 80 * 201 * 4;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  if (size > kFiltersAt) {
    bytes.insert(bytes.begin() + kFiltersAt, kFilterBytes, std::byte{0});
  }
  varve::RequireWholeOrRefused(varve::ReadWhisperGgml(bytes, "fuzz"));
  return 0;
}
