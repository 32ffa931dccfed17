#include "runtime/audio/sound_decoder.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quoted.h"

namespace varve {
namespace {

// Interleaved samples that are decoded at a time.
constexpr size_t kBlockSamples = 16384;

// Bytes in memory as the file that libsndfile reads.
struct MemoryFile {
  std::span<const std::byte> bytes;
  int64_t position = 0;
  int64_t size() const { return static_cast<int64_t>(bytes.size()); }
};

MemoryFile& FileOf(void* user) { return *static_cast<MemoryFile*>(user); }

sf_count_t FileSize(void* user) { return FileOf(user).size(); }

sf_count_t Tell(void* user) { return FileOf(user).position; }

sf_count_t Seek(sf_count_t offset, int whence, void* user) {
  MemoryFile& file = FileOf(user);
  int64_t base = 0;
  if (whence == SEEK_CUR) base = file.position;
  if (whence == SEEK_END) base = file.size();
  // Clamped without overflow: base is within the file.
  if (offset < -base) return -1;
  file.position = offset > file.size() - base ? file.size() : base + offset;
  return file.position;
}

sf_count_t ReadBytes(void* out, sf_count_t count, void* user) {
  MemoryFile& file = FileOf(user);
  const int64_t wanted = std::clamp<int64_t>(count, 0, file.size() - file.position);
  if (wanted > 0) std::memcpy(out, file.bytes.data() + file.position, static_cast<size_t>(wanted));
  file.position += wanted;
  return wanted;
}

bool IsSoundFile(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 12));
  for (const std::string_view magic : {"RIFF", "RIFX", "RF64", "fLaC", "OggS", "ID3"}) {
    if (start.substr(0, magic.size()) == magic) return true;
  }
  // A frame of MPEG audio: eleven bits set.
  return start.size() >= 2 && start[0] == '\xFF' && (start[1] & 0xE0) == 0xE0;
}

// libsndfile keeps the reason why a file did not open in memory that all threads share.
std::mutex& OpenMutex() {
  static std::mutex mutex;
  return mutex;
}

// What libsndfile says, without the period or line break that some of its messages end with. Where
// mp3 frames or a sample rate make no sense it speaks of files that do not exist and of itself.
std::string Reason(const char* message) {
  std::string text(message);
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  if (text.starts_with("File does not exist") || text.starts_with("Internal error")) {
    return "its header or its first frame makes no sense";
  }
  return Printable(text);
}

}  // namespace

struct SoundDecoder::State {
  std::string name;
  MemoryFile file;
  SF_INFO info = {};
  SNDFILE* handle = nullptr;
  std::vector<float> block;  // [frames, channels]
  int64_t samples_read = 0;  // per channel

  ~State() {
    if (handle != nullptr) sf_close(handle);
  }
  double seconds(int64_t samples) const {
    return static_cast<double>(samples) / static_cast<double>(info.samplerate);
  }
};

SoundDecoder::SoundDecoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
SoundDecoder::~SoundDecoder() = default;
SoundDecoder::SoundDecoder(SoundDecoder&&) noexcept = default;
SoundDecoder& SoundDecoder::operator=(SoundDecoder&&) noexcept = default;

Result<SoundDecoder> SoundDecoder::Open(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) return InvalidArgument(fmt::format("{} is empty: no sound file", name));
  if (!IsSoundFile(bytes)) {
    return InvalidArgument(
        fmt::format("{} is no wav, flac, ogg or mp3 file: convert it to one of these", name));
  }
  auto state = std::make_unique<State>();
  state->name = name;
  state->file.bytes = bytes;
  SF_VIRTUAL_IO io = {FileSize, Seek, ReadBytes, nullptr, Tell};
  {
    const std::lock_guard<std::mutex> lock(OpenMutex());
    state->handle = sf_open_virtual(&io, SFM_READ, &state->info, &state->file);
    if (state->handle == nullptr) {
      return InvalidArgument(
          fmt::format("{} cannot be read as sound: {}", name, Reason(sf_strerror(nullptr))));
    }
  }
  const SF_INFO& info = state->info;
  if (info.samplerate < kMinSoundRate || info.samplerate > kMaxSoundRate) {
    return InvalidArgument(fmt::format("{}: sample rate {} Hz is not within {} to {}", name,
                                       info.samplerate, kMinSoundRate, kMaxSoundRate));
  }
  if (info.channels < 1) {
    return InvalidArgument(fmt::format("{}: number of channels {} < 1", name, info.channels));
  }
  const size_t channels = static_cast<size_t>(info.channels);
  state->block.resize(std::max<size_t>(kBlockSamples / channels, 1) * channels);
  return SoundDecoder(std::move(state));
}

int SoundDecoder::rate() const { return state_->info.samplerate; }

std::optional<int64_t> SoundDecoder::claimed_samples() const {
  const int64_t frames = state_->info.frames;
  if (frames <= 0 || frames == SF_COUNT_MAX) return std::nullopt;
  return frames;
}

Result<size_t> SoundDecoder::Read(std::span<float> out) {
  State& s = *state_;
  const size_t channels = static_cast<size_t>(s.info.channels);
  const float share = 1.0F / static_cast<float>(channels);
  size_t done = 0;
  while (done < out.size()) {
    const size_t wanted = std::min(out.size() - done, s.block.size() / channels);
    const size_t got = static_cast<size_t>(std::max<sf_count_t>(
        sf_readf_float(s.handle, s.block.data(), static_cast<sf_count_t>(wanted)), 0));
    for (size_t i = 0; i < got; ++i) {
      float sum = 0;
      for (size_t c = 0; c < channels; ++c) sum += s.block[i * channels + c];
      out[done + i] = sum * share;
    }
    VARVE_RETURN_IF_ERROR(CheckSamples(out.subspan(done, got)));
    done += got;
    s.samples_read += static_cast<int64_t>(got);
    if (got < wanted) {
      VARVE_RETURN_IF_ERROR(CheckEnd());
      break;
    }
  }
  return done;
}

Status SoundDecoder::CheckSamples(std::span<const float> samples) const {
  const auto bad = std::find_if(samples.begin(), samples.end(),
                                [](float x) { return !(std::fabs(x) <= kMaxSoundSample); });
  if (bad == samples.end()) return Status();
  const int64_t index = state_->samples_read + (bad - samples.begin());
  return InvalidArgument(fmt::format("{}: sample {} (at {:.3f} s) is {}: no sound", state_->name,
                                     index, state_->seconds(index), *bad));
}

// libsndfile forgets its error with the next call. Where a damaged page hides the rest of an ogg
// file there is none: the header's length tells. That of an mp3 file is a guess.
Status SoundDecoder::CheckEnd() const {
  const State& s = *state_;
  const int64_t claimed = claimed_samples().value_or(0);
  const bool is_guess = (s.info.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG;
  if (sf_error(s.handle) != SF_ERR_NO_ERROR) {
    return DataLoss(fmt::format("{} is damaged or cut off after {:.3f} s: {}", s.name,
                                s.seconds(s.samples_read), Reason(sf_strerror(s.handle))));
  }
  if (s.samples_read < claimed && !is_guess) {
    return DataLoss(fmt::format("{} is damaged or cut off: it ends after {:.3f} of {:.3f} s",
                                s.name, s.seconds(s.samples_read), s.seconds(claimed)));
  }
  return Status();
}

}  // namespace varve
