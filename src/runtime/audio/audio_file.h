// Sound files as what speech models take: mono f32 samples at 16 kHz.
//
// Reads wav, flac, ogg (Vorbis, Opus) and mp3, any rate and number of channels: channels are
// averaged, then resampled. Samples that are not finite are refused, naming where. Sound is decoded
// and resampled block by block, so memory follows what a file holds, not what its header claims.
// A file that was cut off gives what is left of it where its format does not tell (wav, ogg, mp3);
// otherwise it is refused, as damaged files are.
//
// Calls may run at the same time.

#ifndef VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_
#define VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

inline constexpr int kSpeechRate = 16000;

// Twelve hours: 2.8 GB of samples, and 1.4 GB more as a log-mel spectrogram with 80 bins.
inline constexpr double kMaxSpeechSeconds = 12 * 3600;

// "-" reads standard input; pipes are read to their end first. At least one sample.
Result<std::vector<float>> ReadSpeech(const std::string& path,
                                      double max_seconds = kMaxSpeechSeconds);
// `name` is for messages.
Result<std::vector<float>> ReadSpeech(std::span<const std::byte> bytes, const std::string& name,
                                      double max_seconds = kMaxSpeechSeconds);

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_AUDIO_FILE_H_
