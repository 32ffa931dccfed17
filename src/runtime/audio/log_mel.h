// The log-mel spectrogram that Whisper hears: windows of 400 samples (periodic Hann) every 160,
// power of the 201 bins, mel filters (Slaney's scale and area norm), log10, nothing more than 8
// below the largest value, (x + 4) / 4.
//
// Everything up to the logarithm is computed in f64: beside a loud bin an f32 transform leaves
// errors that the logarithm of a quiet one shows (2e-4 at 80 dB below).

#ifndef VARVE_RUNTIME_AUDIO_LOG_MEL_H_
#define VARVE_RUNTIME_AUDIO_LOG_MEL_H_

#include <cstddef>
#include <span>
#include <vector>

#include "varve/executor.h"

namespace varve {

inline constexpr int kMelFrameSamples = 160;
inline constexpr int kMelWindowFrames = 3000;  // 30 seconds
inline constexpr int kMelBins = 201;           // of the transform of 400 samples

struct LogMel {
  int mels = 0;
  int frames = 0;             // whole ones of the sound itself, before padding: samples / 160
  std::vector<float> values;  // [mels, frames + kMelWindowFrames]: 30 s of silence follow
  int stride() const { return frames + kMelWindowFrames; }
};

// As OpenAI's log_mel_spectrogram(audio, padding=480000): reflected by 200 samples at both ends of
// the padded sound; the last frame is dropped. The same bits for any number of threads. Samples are
// finite, as ReadSpeech gives them.
LogMel ComputeLogMel(std::span<const float> samples, int mels, Executor& executor);

// [mels, 201], as librosa.filters.mel(sr=16000, n_fft=400, n_mels=mels).
std::vector<float> MelFilters(int mels);

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_LOG_MEL_H_
