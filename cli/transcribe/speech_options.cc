#include "cli/transcribe/speech_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/model_argument.h"

namespace varve::cli {
namespace {

constexpr double kTemperatureStep = 0.2;

}  // namespace

void AddSpeechOptions(CLI::App& command, SpeechOptionsSaid& options) {
  AddSpeechModelOption(command, options.model);
  command.add_option("--language", options.language,
                     "Spoken language, as code or name (default: what the model hears)");
  command.add_option("--task", options.task, "transcribe, or translate to English")
      ->capture_default_str()
      ->check(CLI::IsMember({"transcribe", "translate"}));
  command.add_option("--beam", options.beam, "Beams; 1 is greedy")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command.add_option("--best-of", options.best_of, "Samples at a temperature above 0")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      .add_option("--temperature", options.temperature,
                  "The first temperature; where a window fails, higher ones follow (default: 0)")
      ->check(CLI::Range(0.0, 1.0));
  command.add_flag("--no-fallback", options.no_fallback,
                   "Keep a window's text at the first temperature, even if it fails");
  command.add_flag("--no-timestamps", options.no_timestamps,
                   "Ask the model for text alone: a segment per window, without times in it");
  command.add_option("--prompt", options.prompt, "Text that comes before, for names and style");
  command.add_option("--seed", options.seed, "Seed of samples; the same seed gives the same text")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--precision", options.precision,
                  "Products of the encoder: f32, i16, bf16, or auto: what is fastest here")
      ->capture_default_str()
      ->check(PrecisionValidator(/*with_auto=*/true));
}

TranscribeOptions DecodingFor(const SpeechOptionsSaid& options) {
  TranscribeOptions decoding;
  decoding.language = options.language;
  decoding.translate = options.task == "translate";
  decoding.search.beams = options.beam;
  decoding.search.best_of = options.best_of;
  decoding.search.seed = options.seed;
  decoding.prompt = options.prompt;
  const double first = options.temperature.value_or(0);
  decoding.temperatures.clear();
  for (int i = 0; first + i * kTemperatureStep <= 1.0 + 1e-6; ++i) {
    decoding.temperatures.push_back(first + i * kTemperatureStep);
    if (options.no_fallback) break;
  }
  decoding.timestamps = !options.no_timestamps;
  return decoding;
}

ProductPrecision PrecisionFor(const SpeechOptionsSaid& options) {
  if (options.precision == "auto") return FastestPrecision();
  return FindPrecision(options.precision).value_or(ProductPrecision::kF32);
}

}  // namespace varve::cli
