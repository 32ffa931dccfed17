// Reads any bytes as a file of torch.save. If the first byte is odd they are only the pickle, in a
// correct zip with a storage "0" of 512 f32, enough for a small compressor. Conversion must end,
// and what it gives must be a valid compressor.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/torch/compressor_convert.h"
#include "tests/pth_testing.h"
#include "varve/compressor.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

std::vector<std::byte> Storage() {
  std::vector<std::byte> bytes(512 * sizeof(float));
  for (size_t i = 0; i < 512; ++i) {
    const float value = static_cast<float>(i) / 512 - 0.5f;
    std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if (data[0] % 2 == 1) bytes = varve::BuildPth(bytes, {{"0", Storage()}});
  varve::CompressorConvertOptions options;
  options.dtype = static_cast<varve::CompressorDtype>(data[0] / 2 % 3);
  options.text_only = data[0] / 8 % 2 == 1;
  const auto converted = varve::ConvertPthCompressor(bytes, "fuzz", options);
  if (!converted.ok()) {
    Require(converted.status().message().size() > 6);
    return 0;
  }
  Require(varve::CheckCompressor(converted->compressor).ok());
  const auto written = varve::SerializeCompressor(converted->compressor);
  Require(varve::ParseCompressor(written, "fuzz").ok());
  return 0;
}
