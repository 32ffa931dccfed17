// Numbers of ggml's Whisper files that reader and writer share. The layout:
// docs/format/whisper-ggml.md.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_GGML_FORMAT_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_GGML_FORMAT_H_

#include <cstdint>

namespace varve {

inline constexpr uint32_t kWhisperGgmlMagic = 0x67676D6C;  // "lmgg" as bytes
inline constexpr int32_t kWhisperFftBins = 201;
inline constexpr int32_t kMaxWhisperTokenBytes = 4096;
inline constexpr int32_t kMaxWhisperNameBytes = 256;
// `ftype` is 1000 * this + the type of most tensors where that is one of integers.
inline constexpr int32_t kGgmlQuantizationVersion = 2;
inline constexpr int32_t kGgmlQuantizationFactor = 1000;

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_GGML_FORMAT_H_
