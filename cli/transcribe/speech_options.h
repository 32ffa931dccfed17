// The options that commands on speech share: the model, and how text is decoded.

#ifndef VARVE_CLI_TRANSCRIBE_SPEECH_OPTIONS_H_
#define VARVE_CLI_TRANSCRIBE_SPEECH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/kernels/linear.h"
#include "runtime/whisper/transcriber.h"
#include "varve/plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct SpeechOptionsSaid {
  std::string model;  // a file
  std::string language;
  std::string task = "transcribe";
  int beam = 5;
  int best_of = 5;
  std::optional<double> temperature;
  bool no_fallback = false;
  bool no_timestamps = false;
  std::string prompt;
  uint64_t seed = 0;
  int threads = 0;  // 0: all cores
  std::string precision = "auto";
};

// -m, --language, --task, --beam, --best-of, --temperature, --no-fallback, --no-timestamps,
// --prompt, --seed, --threads, --precision.
void AddSpeechOptions(CLI::App& command, SpeechOptionsSaid& options);

// How the options say that text is decoded. A temperature is tried first; those above it, in steps
// of 0.2 up to 1, where a window fails, unless --no-fallback forbids it.
TranscribeOptions DecodingFor(const SpeechOptionsSaid& options);

ProductPrecision PrecisionFor(const SpeechOptionsSaid& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_TRANSCRIBE_SPEECH_OPTIONS_H_
