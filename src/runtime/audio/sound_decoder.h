// SoundDecoder: wav, flac, ogg or mp3 bytes as a stream of mono samples, at the file's own rate.
//
// Decodes block by block with libsndfile. Other formats that libsndfile knows are refused before it
// sees them: nobody asked for them, and their parsers are the least used.
//
// Not for several threads at once; different decoders may run at the same time.

#ifndef VARVE_RUNTIME_AUDIO_SOUND_DECODER_H_
#define VARVE_RUNTIME_AUDIO_SOUND_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "varve/status.h"

namespace varve {

// Rates outside are no sound that anybody recorded.
inline constexpr int kMinSoundRate = 1000;
inline constexpr int kMaxSoundRate = 768000;
// Full scale is 1. Some float files hold 16-bit values as they are; beyond a million it is no
// sound.
inline constexpr float kMaxSoundSample = 1e6F;

class SoundDecoder {
 public:
  // `bytes` must outlive the decoder. kInvalidArgument: no sound file, or one that is not taken.
  static Result<SoundDecoder> Open(std::span<const std::byte> bytes, const std::string& name);
  ~SoundDecoder();
  SoundDecoder(SoundDecoder&&) noexcept;
  SoundDecoder& operator=(SoundDecoder&&) noexcept;

  int rate() const;
  // What the header says, which may be wrong; none where it does not say.
  std::optional<int64_t> claimed_samples() const;

  // The next samples, channels averaged; fewer than out.size() only at the end, then 0.
  // kDataLoss where the file is damaged, kInvalidArgument for a sample that is not finite or
  // beyond kMaxSoundSample.
  Result<size_t> Read(std::span<float> out);

 private:
  struct State;
  explicit SoundDecoder(std::unique_ptr<State> state);

  Status CheckSamples(std::span<const float> samples) const;
  Status CheckEnd() const;

  std::unique_ptr<State> state_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_SOUND_DECODER_H_
