// CTranslate2's model.bin from strangers: no bytes may crash the reader. What it takes must be a
// whole model: every tensor of the config, aligned, readable to its last byte, with finite values.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/whisper/whisper_tensors.h"
#include "tests/whisper_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  // A copy: nothing readable past its end.
  const std::vector<std::byte> bytes(begin, begin + size);
  varve::RequireWholeOrRefused(varve::ReadWhisperCt2(bytes, "fuzz"));
  return 0;
}
