// Sound files as what speech models take: mono f32 samples at 16 kHz.
//
// Reads wav, flac, ogg (Vorbis, Opus) and mp3, any rate and number of channels: channels are
// averaged, then resampled. Samples that are not finite are refused, naming where.

#ifndef VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_
#define VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

inline constexpr int kSpeechRate = 16000;

// "-" reads standard input.
Result<std::vector<float>> ReadSpeech(const std::string& path);
Result<std::vector<float>> ReadSpeech(std::span<const std::byte> bytes, const std::string& name);

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_
