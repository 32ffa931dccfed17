// Whisper checkpoints from strangers. The input is the pickle of a file of torch.save, in a correct
// zip with storages "0" of 4096 f16 and "1" of 4096 f32, enough for a small model. Reading must
// end, and what it gives must be a whole model. The zip itself is what fuzz_pth searches.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/whisper/whisper_tensors.h"
#include "tests/pth_testing.h"
#include "tests/whisper_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> pickle(begin, begin + size);
  std::vector<std::pair<std::string, std::vector<std::byte>>> storages;
  for (const size_t number_bytes : {2, 4}) {
    storages.emplace_back(std::to_string(storages.size()),
                          std::vector<std::byte>(4096 * number_bytes, std::byte{0x11}));
  }
  varve::RequireWholeOrRefused(varve::ReadWhisperPt(varve::BuildPth(pickle, storages), "fuzz"));
  return 0;
}
