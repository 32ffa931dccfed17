#include "runtime/audio/audio_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "runtime/audio/resampler.h"
#include "runtime/audio/sound_decoder.h"
#include "runtime/audio/sound_testing.h"

#ifdef VARVE_SANITIZED
// libsndfile 1.2 loses some KB where it gives up on a damaged ogg file.
extern "C" const char* __lsan_default_suppressions();   // NOLINT: the sanitizer's name
extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libsndfile\nleak:libvorbis\nleak:libogg\nleak:libopus\nleak:libmpg123\n";
}
#endif

namespace varve {
namespace audio_file_test {
namespace {

constexpr int kFloatWav = SF_FORMAT_WAV | SF_FORMAT_FLOAT;

// How much of 440 Hz is in the samples, whatever the delay of a codec.
double AmplitudeAt440(const std::vector<float>& samples) {
  std::complex<double> sum = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    sum += static_cast<double>(samples[i]) *
           std::polar(1.0, -2 * std::numbers::pi * 440 * static_cast<double>(i) / kSpeechRate);
  }
  return 2 * std::abs(sum) / static_cast<double>(samples.size());
}

void ExpectRefused(const Result<std::vector<float>>& result, StatusCode code,
                   const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status().ToString();
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
  EXPECT_NE(result.status().message().find("talk"), std::string::npos) << result.status().message();
}

TEST(ReadSpeech, TakesEveryFormat) {
  struct Case {
    const char* name;
    SoundFormat format;
    double tolerance;
  };
  for (const Case& c :
       std::vector<Case>{{"16-bit wav", {SF_FORMAT_WAV | SF_FORMAT_PCM_16, 44100, 2}, 1e-3},
                         {"24-bit wav", {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 44100, 2}, 1e-3},
                         {"8-bit wav", {SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 8000, 1}, 1e-2},
                         {"u-law wav", {SF_FORMAT_WAV | SF_FORMAT_ULAW, 8000, 1}, 2e-2},
                         {"float wav", {kFloatWav, 22050, 1}, 1e-3},
                         {"flac", {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 48000, 2}, 1e-3},
                         {"ogg with Vorbis", {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2}, 3e-2},
                         {"ogg with Opus", {SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1}, 3e-2},
                         {"mp3", {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 2}, 3e-2}}) {
    SCOPED_TRACE(c.name);
    const std::vector<float> sine = Sine(c.format.rate, c.format.channels, c.format.rate);
    const Result<std::vector<float>> speech = ReadSpeech(EncodeSound(sine, c.format), "talk");
    ASSERT_TRUE(speech.ok()) << speech.status().ToString();
    EXPECT_NEAR(static_cast<double>(speech->size()), kSpeechRate, 1);
    EXPECT_NEAR(AmplitudeAt440(*speech), 0.4, 0.4 * c.tolerance);
  }
}

// libsndfile writes 1.0 as 32767; what is read is the integer by 32768.
TEST(ReadSpeech, KeepsSamplesThatNeedNoResampling) {
  std::vector<float> samples;
  std::vector<float> expected;
  for (const int code : {0, 1, -1, 12345, -32767, 32767}) {
    samples.push_back(static_cast<float>(code) / 32767.0F);
    expected.push_back(static_cast<float>(code) / 32768.0F);
  }
  for (const int format : {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16}) {
    const Result<std::vector<float>> speech =
        ReadSpeech(EncodeSound(samples, {format, kSpeechRate, 1}), "talk");
    ASSERT_TRUE(speech.ok());
    EXPECT_EQ(*speech, expected);
  }
}

TEST(ReadSpeech, AveragesChannels) {
  std::vector<float> samples;
  for (int frame = 0; frame < 3000; ++frame) {
    for (int channel = 0; channel < 8; ++channel) {
      samples.push_back(static_cast<float>(channel) / 16.0F);
    }
  }
  const Result<std::vector<float>> speech =
      ReadSpeech(EncodeSound(samples, {kFloatWav, kSpeechRate, 8}), "talk");
  ASSERT_TRUE(speech.ok());
  EXPECT_EQ(*speech, std::vector<float>(3000, 3.5F / 16.0F));
}

TEST(ReadSpeech, ResamplesWithoutDelayOrLossOfLevel) {
  for (const int rate : {8000, 11025, 22050, 32000, 44100, 48000, 96000, 44099}) {
    SCOPED_TRACE(rate);
    const Result<std::vector<float>> speech =
        ReadSpeech(EncodeSound(Sine(rate, 1, rate), {kFloatWav, rate, 1}), "talk");
    ASSERT_TRUE(speech.ok());
    const std::vector<float> expected = Sine(kSpeechRate, 1, kSpeechRate);
    ASSERT_NEAR(static_cast<double>(speech->size()), static_cast<double>(expected.size()), 1);
    for (size_t i = 500; i + 500 < speech->size(); ++i) {
      ASSERT_NEAR((*speech)[i], expected[i], 1e-5) << i;
    }
  }
}

TEST(ReadSpeech, OfOneSampleIsAtLeastOneSample) {
  for (const int rate : {1000, 8000, kSpeechRate, 44100, 768000}) {
    SCOPED_TRACE(rate);
    const Result<std::vector<float>> speech =
        ReadSpeech(EncodeSound(std::vector<float>{0.5F}, {kFloatWav, rate, 1}), "talk");
    ASSERT_TRUE(speech.ok());
    EXPECT_GE(speech->size(), 1U);
    EXPECT_LE(speech->size(), 16U);
  }
}

TEST(ReadSpeech, RefusesWhatIsNoSound) {
  using enum StatusCode;
  ExpectRefused(ReadSpeech({}, "talk.wav"), kInvalidArgument, "is empty");
  const std::string text = "What people say.";
  ExpectRefused(ReadSpeech(std::as_bytes(std::span(text)), "talk.txt"), kInvalidArgument,
                "no wav, flac, ogg or mp3");
  const std::string riff = "RIFF....WAVE";
  ExpectRefused(ReadSpeech(std::as_bytes(std::span(riff)), "talk.wav"), kInvalidArgument,
                "cannot be read as sound");
  ExpectRefused(ReadSpeech(EncodeSound({}, {}), "talk.wav"), kInvalidArgument, "no samples");
  ExpectRefused(ReadSpeech(EncodeSound(Sine(100, 1, 50), {kFloatWav, 100, 1}), "talk.wav"),
                kInvalidArgument, "100 Hz is not within 1000 to 768000");
}

TEST(ReadSpeech, OfAnMp3FileWithoutFramesSaysWhatIsWrong) {
  std::vector<std::byte> mp3 = EncodeSound(
      Sine(kSpeechRate, 1, 4000), {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, kSpeechRate, 1});
  mp3.resize(60);
  ExpectRefused(ReadSpeech(mp3, "talk.mp3"), StatusCode::kInvalidArgument,
                "its header or its first frame makes no sense");
}

TEST(ReadSpeech, NamesTheSampleThatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F}) {
    std::vector<float> samples = Sine(kSpeechRate, 1, 20000);
    samples[16400] = bad;
    ExpectRefused(ReadSpeech(EncodeSound(samples, {kFloatWav, kSpeechRate, 1}), "talk.wav"),
                  StatusCode::kInvalidArgument, "sample 16400 (at 1.025 s)");
  }
}

TEST(ReadSpeech, NamesLengthAndLimitOfWhatIsTooLong) {
  const std::vector<std::byte> wav =
      EncodeSound(Sine(8000, 1, 40000), {SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1});
  ExpectRefused(ReadSpeech(wav, "talk.wav", 4.0), StatusCode::kInvalidArgument,
                "lasts 0.00 hours (5.0 s); the limit is 0.00 hours (4.0 s)");
  EXPECT_TRUE(ReadSpeech(wav, "talk.wav", 5.0).ok());
}

// The header of a flac file has the number of samples in 36 bits that begin at bit 172.
std::vector<std::byte> FlacThatClaims(uint64_t samples) {
  std::vector<std::byte> flac =
      EncodeSound(Sine(kSpeechRate, 1, 40000), {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, kSpeechRate, 1});
  flac[21] = (flac[21] & std::byte{0xF0}) | static_cast<std::byte>(samples >> 32);
  for (size_t i = 0; i < 4; ++i) flac[22 + i] = static_cast<std::byte>(samples >> (24 - 8 * i));
  return flac;
}

TEST(ReadSpeech, DoesNotBelieveTheHeader) {
  using enum StatusCode;
  ExpectRefused(ReadSpeech(FlacThatClaims((uint64_t{1} << 36) - 1), "talk.flac"), kInvalidArgument,
                "the limit is 12.00 hours");
  // Eleven hours would be 2.5 GB.
  ExpectRefused(ReadSpeech(FlacThatClaims(uint64_t{11} * 3600 * kSpeechRate), "talk.flac"),
                kDataLoss, "damaged or cut off");
  // No length: as a program writes that does not know it yet.
  const Result<std::vector<float>> speech = ReadSpeech(FlacThatClaims(0), "talk.flac");
  ASSERT_TRUE(speech.ok()) << speech.status().ToString();
  EXPECT_EQ(speech->size(), 40000U);
  ExpectRefused(ReadSpeech(FlacThatClaims(0), "talk.flac", 2.0), kInvalidArgument,
                "lasts more than");
}

TEST(ReadSpeech, TakesAWavWithoutLength) {
  std::vector<std::byte> wav =
      EncodeSound(Sine(kSpeechRate, 1, 1000), {SF_FORMAT_WAV | SF_FORMAT_PCM_16, kSpeechRate, 1});
  for (const size_t field : {4, 40}) {
    for (size_t i = 0; i < 4; ++i) wav[field + i] = std::byte{0xFF};
  }
  const Result<std::vector<float>> speech = ReadSpeech(wav, "talk.wav");
  ASSERT_TRUE(speech.ok()) << speech.status().ToString();
  EXPECT_EQ(speech->size(), 1000U);
}

TEST(ReadSpeech, OfACutFileIsAResultOrSaysSo) {
  for (const int format : {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16,
                           SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_OPUS}) {
    const std::vector<std::byte> whole =
        EncodeSound(Sine(kSpeechRate, 1, 4000), {format, kSpeechRate, 1});
    const size_t step = whole.size() / 60 + 1;
    for (size_t size = 0; size < whole.size(); size += step) {
      SCOPED_TRACE(fmt::format("format {:x}, {} of {} bytes", format, size, whole.size()));
      const Result<std::vector<float>> speech = ReadSpeech(std::span(whole).first(size), "talk");
      if (speech.ok()) {
        EXPECT_LE(speech->size(), 4400U);
      } else {
        EXPECT_EQ(speech.status().message().rfind("talk", 0), 0U) << speech.status().message();
      }
    }
  }
}

TEST(ReadSpeech, SaysWhereAFlacFileIsDamaged) {
  std::vector<std::byte> flac =
      EncodeSound(Sine(kSpeechRate, 1, 64000), {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, kSpeechRate, 1});
  for (size_t i = flac.size() / 2; i < flac.size() / 2 + 100; ++i) flac[i] ^= std::byte{0x5A};
  ExpectRefused(ReadSpeech(flac, "talk.flac"), StatusCode::kDataLoss, "damaged or cut off");
}

TEST(ReadSpeech, SaysWhatIsWrongWithAPath) {
  using enum StatusCode;
  EXPECT_EQ(ReadSpeech("/no/such/talk.wav").status().code(), kNotFound);
  const Result<std::vector<float>> folder = ReadSpeech("/tmp");
  ASSERT_EQ(folder.status().code(), kInvalidArgument);
  EXPECT_EQ(folder.status().message(), "/tmp is a folder: name a sound file");
}

TEST(ReadSpeech, TakesAPipe) {
  const std::vector<float> samples = Sine(kSpeechRate, 1, 5000);
  const std::vector<std::byte> wav = EncodeSound(samples, {kFloatWav, kSpeechRate, 1});
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], wav.data(), wav.size()), static_cast<ssize_t>(wav.size()));
  close(ends[1]);
  const Result<std::vector<float>> speech = ReadSpeech(fmt::format("/dev/fd/{}", ends[0]));
  close(ends[0]);
  ASSERT_TRUE(speech.ok()) << speech.status().ToString();
  EXPECT_EQ(*speech, samples);
}

TEST(Resampler, GivesTheSameInAnyDivisionIntoCalls) {
  const std::vector<float> samples = Sine(44100, 1, 30000);
  std::vector<std::vector<float>> results;
  for (const size_t block : {size_t{30000}, size_t{1}, size_t{777}, size_t{16384}}) {
    Result<Resampler> resampler = Resampler::Create(44100, kSpeechRate);
    ASSERT_TRUE(resampler.ok());
    std::vector<float>& out = results.emplace_back();
    for (size_t i = 0; i < samples.size(); i += block) {
      const size_t count = std::min(block, samples.size() - i);
      ASSERT_TRUE(resampler->Add(std::span(samples).subspan(i, count), out).ok());
    }
    ASSERT_TRUE(resampler->Finish(out).ok());
    EXPECT_EQ(out, results.front()) << block;
  }
}

}  // namespace
}  // namespace audio_file_test
}  // namespace varve
