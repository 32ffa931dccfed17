// Sound files from strangers: no bytes may crash the reader, and what a header claims may not cost
// memory. What is read must keep the reader's promises, and a spectrogram of it must be numbers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/audio/audio_file.h"
#include "runtime/audio/log_mel.h"
#include "varve/executor.h"

#ifdef VARVE_SANITIZED
// libsndfile 1.2 loses some KB where it gives up on a damaged ogg file.
extern "C" const char* __lsan_default_suppressions();   // NOLINT: the sanitizer's name
extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libsndfile\nleak:libvorbis\nleak:libogg\nleak:libopus\nleak:libmpg123\n";
}
#endif

namespace {

// A few bytes of flac can hold hours of silence.
constexpr double kMaxSeconds = 5;
constexpr size_t kMaxMelSamples = 2000;

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const varve::Result<std::vector<float>> speech = varve::ReadSpeech(bytes, "talk", kMaxSeconds);
  if (!speech.ok()) {
    const varve::Status& status = speech.status();
    Require(status.code() == varve::StatusCode::kInvalidArgument ||
            status.code() == varve::StatusCode::kDataLoss);
    Require(status.message().rfind("talk", 0) == 0);
    return 0;
  }
  Require(!speech->empty());
  Require(speech->size() <= static_cast<size_t>(kMaxSeconds * varve::kSpeechRate) + 1);
  Require(std::all_of(speech->begin(), speech->end(), [](float x) { return std::isfinite(x); }));
  static const std::unique_ptr<varve::Executor> executor = varve::MakeThreadPool(1);
  const auto heard = std::span(*speech).first(std::min(speech->size(), kMaxMelSamples));
  const varve::LogMel mel = varve::ComputeLogMel(heard, 80, *executor);
  Require(mel.frames == static_cast<int>(heard.size() / varve::kMelFrameSamples));
  Require(
      std::all_of(mel.values.begin(), mel.values.end(), [](float x) { return std::isfinite(x); }));
  return 0;
}
