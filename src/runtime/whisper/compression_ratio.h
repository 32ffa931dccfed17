// How well a text packs: Whisper's sign of a decoder that repeats itself.

#ifndef VARVE_RUNTIME_WHISPER_COMPRESSION_RATIO_H_
#define VARVE_RUNTIME_WHISPER_COMPRESSION_RATIO_H_

#include <string_view>

namespace varve {

// Bytes of the text by bytes of its zlib form at zlib's default level, as Python's
// len(text) / len(zlib.compress(text)). 0 for an empty text. Above 2.4 a text is taken as stuck.
double CompressionRatio(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_COMPRESSION_RATIO_H_
