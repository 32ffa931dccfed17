// `varve transcribe`: speech to text with a Whisper model.

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/report/output.h"
#include "cli/transcribe/transcribe_files.h"

namespace {

using varve::cli::TranscribeFilesOptions;

void AddCacheOptions(CLI::App* command, TranscribeFilesOptions* options) {
  CLI::Option* plan = command->add_option(
      "--kv", options->plan,
      "Plan of the decoder's cache, and with cross= of the encoder's rows (default: f16)");
  command->add_option("--kv-type-k", options->type_k, "Rung of all keys: short for --kv k=RUNG")
      ->type_name("RUNG")
      ->excludes(plan);
  command->add_option("--kv-type-v", options->type_v, "Rung of all values: short for --kv v=RUNG")
      ->type_name("RUNG")
      ->excludes(plan);
  command->add_option_function<std::string>(
      "--max-memory",
      [options](const std::string& text) {
        varve::Result<int64_t> bytes = varve::cli::ParseByteSize("--max-memory", text);
        if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
        options->max_memory = static_cast<uint64_t>(*bytes);
      },
      "Files begin only while the caches of all under way need less than this, by an estimate from "
      "their length; no text is ever cut");
}

}  // namespace

void AddTranscribeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("transcribe", "Speech to text with a Whisper model, on the same cache");
  auto options = std::make_shared<TranscribeFilesOptions>();
  varve::cli::AddSpeechOptions(*command, options->speech);
  command
      ->add_option("AUDIO", options->files,
                   "Sound files: wav, flac, ogg or mp3, any rate and channels; - is stdin")
      ->required();
  command->add_option("--format", options->format, "txt, srt, vtt, or json with times of words")
      ->capture_default_str()
      ->check(CLI::IsMember({"txt", "srt", "vtt", "json"}));
  command
      ->add_option("-o,--output", options->output,
                   "Write to a file; with several inputs, to files of their names in a folder")
      ->type_name("FILE|DIR");
  AddCacheOptions(command, options.get());
  command->add_option("-j,--together", options->together, "Files that are worked on at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_flag("--stats", options->stats, "Say on stderr what each file took");
  command->footer(
      "Text comes as it is found. A window of 30 seconds is encoded once; its rows are sealed in "
      "cross= at once and\nshared by all beams. Ctrl-C ends with the text so far.\n\n"
      "Examples:\n"
      "  varve transcribe -m whisper-tiny.en speech.wav\n"
      "  varve transcribe -m ggml-base.bin talk.mp3 --format srt -o talk.srt\n"
      "  varve transcribe -m whisper-base rede.ogg --language de --task translate\n"
      "  varve transcribe -m whisper-base *.flac -j 2 -o texts --kv 'q8_0,cross=q4_0r'\n"
      "  sox talk.wav -t wav - | varve transcribe -m whisper-tiny.en - --format json\n"
      "The exit code is that of the first file that failed (`varve --help` lists them); the others "
      "are done\n"
      "all the same.");
  command->callback(varve::cli::Action(options, varve::cli::TranscribeFiles, exit_code));
}
