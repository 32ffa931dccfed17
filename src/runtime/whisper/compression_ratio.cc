#include "runtime/whisper/compression_ratio.h"

#include <zlib.h>

#include <vector>

namespace varve {

double CompressionRatio(std::string_view text) {
  if (text.empty()) return 0;
  uLongf packed_bytes = compressBound(text.size());
  std::vector<Bytef> packed(packed_bytes);
  // Cannot fail with a buffer of compressBound() bytes unless memory is exhausted; a text that
  // could not be packed counts as one that does not repeat.
  if (compress(packed.data(), &packed_bytes, reinterpret_cast<const Bytef*>(text.data()),
               text.size()) != Z_OK) {
    return 1;
  }
  return static_cast<double>(text.size()) / static_cast<double>(packed_bytes);
}

}  // namespace varve
