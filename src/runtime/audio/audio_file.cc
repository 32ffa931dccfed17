#include "runtime/audio/audio_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "runtime/audio/resampler.h"
#include "runtime/audio/sound_decoder.h"

namespace varve {
namespace {

// Samples that are decoded before they are resampled.
constexpr size_t kBlockSamples = 16384;

// What a pipe may hold: twelve hours of 16-bit stereo at 44.1 kHz are 7.6 GB, but they would be in
// memory besides the samples. A file is mapped, so it has no such limit.
constexpr size_t kMaxPipedBytes = size_t{4} << 30;
constexpr size_t kPipeBlockBytes = size_t{1} << 16;

// Room is made for what the header claims, but for at most so many samples per byte of the file:
// speech at 6 kbit/s has 21 at 16 kHz. What a file holds beyond that is still read.
constexpr size_t kMaxReservedSamplesPerByte = 32;

Status TooLong(const std::string& name, const char* verb, double seconds, double max_seconds) {
  return InvalidArgument(fmt::format(
      "{} {} {:.2f} hours ({:.1f} s); the limit is {:.2f} hours ({:.1f} s): cut it into parts",
      name, verb, seconds / 3600, seconds, max_seconds / 3600, max_seconds));
}

// Decoded samples as they come, at kSpeechRate.
class SpeechBuilder {
 public:
  SpeechBuilder(std::optional<Resampler> resampler, std::vector<float> samples)
      : resampler_(std::move(resampler)), samples_(std::move(samples)) {}

  Status Add(std::span<const float> decoded) {
    if (resampler_.has_value()) return resampler_->Add(decoded, samples_);
    samples_.insert(samples_.end(), decoded.begin(), decoded.end());
    return Status();
  }
  // Of a sound so short that the filter rounds it to nothing one sample stays.
  Result<std::vector<float>> Finish() {
    if (resampler_.has_value()) VARVE_RETURN_IF_ERROR(resampler_->Finish(samples_));
    if (samples_.empty()) samples_.push_back(0);
    return std::move(samples_);
  }

 private:
  std::optional<Resampler> resampler_;
  std::vector<float> samples_;
};

Result<SpeechBuilder> MakeBuilder(const SoundDecoder& decoder, size_t file_bytes) {
  std::optional<Resampler> resampler;
  if (decoder.rate() != kSpeechRate) {
    VARVE_ASSIGN_OR_RETURN(resampler, Resampler::Create(decoder.rate(), kSpeechRate));
  }
  std::vector<float> samples;
  if (const std::optional<int64_t> claimed = decoder.claimed_samples(); claimed.has_value()) {
    const double expected =
        static_cast<double>(*claimed) * kSpeechRate / static_cast<double>(decoder.rate());
    samples.reserve(static_cast<size_t>(std::min(
                        expected, static_cast<double>(file_bytes * kMaxReservedSamplesPerByte))) +
                    kBlockSamples);
  }
  return SpeechBuilder(std::move(resampler), std::move(samples));
}

Result<std::vector<std::byte>> ReadPipe(int descriptor, const std::string& name) {
  std::vector<std::byte> bytes;
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(have + kPipeBlockBytes);
    const ssize_t got = read(descriptor, bytes.data() + have, kPipeBlockBytes);
    if (got < 0 && errno != EINTR) {
      return IoError(fmt::format("{}: {}", name, std::strerror(errno)));
    }
    bytes.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
    if (bytes.size() > kMaxPipedBytes) {
      return InvalidArgument(fmt::format("{}: more than {} bytes; save it as a file and name that",
                                         name, kMaxPipedBytes));
    }
  }
}

Result<std::vector<float>> ReadSpeechFromPipe(int descriptor, const std::string& name,
                                              double max_seconds) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadPipe(descriptor, name));
  return ReadSpeech(bytes, name, max_seconds);
}

}  // namespace

Result<std::vector<float>> ReadSpeech(std::span<const std::byte> bytes, const std::string& name,
                                      double max_seconds) {
  VARVE_ASSIGN_OR_RETURN(SoundDecoder decoder, SoundDecoder::Open(bytes, name));
  const std::optional<int64_t> claimed = decoder.claimed_samples();
  const double rate = decoder.rate();
  if (claimed.has_value() && static_cast<double>(*claimed) > max_seconds * rate) {
    return TooLong(name, "lasts", static_cast<double>(*claimed) / rate, max_seconds);
  }
  VARVE_ASSIGN_OR_RETURN(SpeechBuilder builder, MakeBuilder(decoder, bytes.size()));
  std::vector<float> block(kBlockSamples);
  int64_t decoded = 0;
  for (;;) {
    VARVE_ASSIGN_OR_RETURN(const size_t got, decoder.Read(block));
    decoded += static_cast<int64_t>(got);
    if (static_cast<double>(decoded) > max_seconds * rate) {
      return TooLong(name, "lasts more than", static_cast<double>(decoded) / rate, max_seconds);
    }
    VARVE_RETURN_IF_ERROR(builder.Add(std::span(block).first(got)));
    if (got < block.size()) break;
  }
  if (decoded == 0)
    return InvalidArgument(fmt::format("{} holds no samples that can be decoded", name));
  return builder.Finish();
}

Result<std::vector<float>> ReadSpeech(const std::string& path, double max_seconds) {
  if (path == "-") return ReadSpeechFromPipe(STDIN_FILENO, "standard input", max_seconds);
  struct stat status = {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) {
    return InvalidArgument(fmt::format("{} is a folder: name a sound file", path));
  }
  if (!is_there || S_ISREG(status.st_mode)) {
    VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<const MappedFile> file, MappedFile::Open(path));
    return ReadSpeech(file->bytes(), path, max_seconds);
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  Result<std::vector<float>> speech = ReadSpeechFromPipe(descriptor, path, max_seconds);
  close(descriptor);
  return speech;
}

}  // namespace varve
