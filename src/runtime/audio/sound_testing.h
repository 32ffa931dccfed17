// Sound files in memory for tests: any format and rate that libsndfile writes.

#ifndef VARVE_RUNTIME_AUDIO_SOUND_TESTING_H_
#define VARVE_RUNTIME_AUDIO_SOUND_TESTING_H_

#include <gtest/gtest.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <span>
#include <vector>

namespace varve {

struct SoundFormat {
  int format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  int rate = 16000;
  int channels = 1;
};

// The bytes of a file with these samples [frames, channels].
inline std::vector<std::byte> EncodeSound(std::span<const float> samples, SoundFormat format) {
  struct Target {
    std::vector<std::byte> bytes;
    size_t position = 0;
  };
  Target target;
  SF_VIRTUAL_IO io = {
      [](void* user) { return static_cast<sf_count_t>(static_cast<Target*>(user)->bytes.size()); },
      [](sf_count_t offset, int whence, void* user) {
        auto& t = *static_cast<Target*>(user);
        if (whence == SEEK_CUR) offset += static_cast<sf_count_t>(t.position);
        if (whence == SEEK_END) offset += static_cast<sf_count_t>(t.bytes.size());
        t.position = static_cast<size_t>(offset);
        return offset;
      },
      [](void* out, sf_count_t count, void* user) {
        auto& t = *static_cast<Target*>(user);
        const size_t got = std::min(static_cast<size_t>(count), t.bytes.size() - t.position);
        std::memcpy(out, t.bytes.data() + t.position, got);
        t.position += got;
        return static_cast<sf_count_t>(got);
      },
      [](const void* data, sf_count_t count, void* user) {
        auto& t = *static_cast<Target*>(user);
        const size_t end = t.position + static_cast<size_t>(count);
        t.bytes.resize(std::max(t.bytes.size(), end));
        std::memcpy(t.bytes.data() + t.position, data, static_cast<size_t>(count));
        t.position = end;
        return count;
      },
      [](void* user) { return static_cast<sf_count_t>(static_cast<Target*>(user)->position); }};
  SF_INFO info = {};
  info.format = format.format;
  info.samplerate = format.rate;
  info.channels = format.channels;
  SNDFILE* file = sf_open_virtual(&io, SFM_WRITE, &info, &target);
  EXPECT_NE(file, nullptr) << sf_strerror(nullptr);
  if (file == nullptr) return {};
  const sf_count_t frames = static_cast<sf_count_t>(samples.size()) / format.channels;
  EXPECT_EQ(sf_writef_float(file, samples.data(), frames), frames);
  sf_close(file);
  return target.bytes;
}

// `frames` of a sine of 440 Hz in every channel.
inline std::vector<float> Sine(int rate, int channels, int frames, double amplitude = 0.4) {
  std::vector<float> samples;
  for (int i = 0; i < frames; ++i) {
    const double x = amplitude * std::sin(2 * std::numbers::pi * 440 * i / rate);
    samples.insert(samples.end(), static_cast<size_t>(channels), static_cast<float>(x));
  }
  return samples;
}

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_SOUND_TESTING_H_
