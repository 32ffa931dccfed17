#include "cli/models/convert_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/inspect/inspect_whisper.h"
#include "cli/models/found_models.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve::cli {
namespace {

struct ConvertType {
  const char* name;
  WeightType type;
};
constexpr ConvertType kConvertTypes[] = {
    {"f16", WeightType::kF16},   {"f32", WeightType::kF32},   {"q8_0", WeightType::kQ8_0},
    {"q5_0", WeightType::kQ5_0}, {"q5_1", WeightType::kQ5_1}, {"q4_0", WeightType::kQ4_0},
    {"q4_1", WeightType::kQ4_1},
};

Result<WeightType> ReadConvertType(const std::string& text) {
  std::string names;
  for (const ConvertType& type : kConvertTypes) {
    if (text == type.name) return type.type;
    names += fmt::format(" {}", type.name);
  }
  return InvalidArgument(fmt::format("--type \"{}\": not one of{}", text, names));
}

// Reading and writing are far apart: what is asked must be possible first.
Status CheckConvertOutput(const std::string& input, const std::string& output) {
  std::error_code error;
  if (std::filesystem::equivalent(input, output, error)) {
    return InvalidArgument(fmt::format("{}: is the input", output));
  }
  const std::filesystem::file_status status = std::filesystem::status(output, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return InvalidArgument(fmt::format("{}: is not a file", output));
  }
  return CheckWritable("--output", output);
}

// Integers rounded again are worse than the same type made of the original.
void NoteSecondRounding(const WhisperTensors& model, WeightType type) {
  const WeightType from = model.tensors.at("decoder.token_embedding.weight").type;
  if (!IsInteger(from) || from == type) return;
  WriteNote(fmt::format(
      "varve: note: the input has been rounded to {} already; converting the original loses less\n",
      InfoOf(from).name));
}

Status WriteConverted(const std::string& input, WeightType type, const std::string& output) {
  VARVE_ASSIGN_OR_RETURN(const WhisperTensors model, ReadWhisperFile(input));
  NoteSecondRounding(model, type);
  Progress progress("convert", 1.0);
  WhisperWriteOptions write;
  write.progress = [&](double fraction) { progress.Update(fraction); };
  return WriteWhisperGgml(model, type, output, write);
}

}  // namespace

Status ConvertModel(const ConvertOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const WeightType type, ReadConvertType(options.type));
  VARVE_ASSIGN_OR_RETURN(const std::string input, ResolveModel(options.input, ModelKind::kSpeech));
  VARVE_RETURN_IF_ERROR(CheckConvertOutput(input, options.output));
  VARVE_RETURN_IF_ERROR(WriteConverted(input, type, options.output));
  // Read again: what is shown is what is there.
  VARVE_ASSIGN_OR_RETURN(const WhisperTensors written, ReadWhisperFile(options.output));
  std::string text = RenderWhisper(options.output, written, UseColour(stdout));
  text += fmt::format("\n{:<12}  {}\n", "from", input);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Status();
}

}  // namespace varve::cli

void AddConvertCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("convert", "Make a ggml file of a Whisper model");
  auto options = std::make_shared<varve::cli::ConvertOptions>();
  command
      ->add_option("INPUT", options->input,
                   "OpenAI's .pt, CTranslate2's model.bin, a ggml file, or a name that `varve "
                   "models` lists")
      ->required()
      ->type_name("FILE|NAME");
  command->add_option("-o,--output", options->output, "File to write")
      ->required()
      ->type_name("FILE.bin");
  command->add_option("--type", options->type, "Of matrices: f16 f32 q8_0 q5_0 q5_1 q4_0 q4_1")
      ->capture_default_str()
      ->type_name("TYPE");
  command->footer(
      "The file is one that whisper.cpp reads, too. Biases, norms and positions stay in f32,\n"
      "convolutions in f16. A .pt is read without Python, and nothing in it is run. The tokens\n"
      "of a model that does not bring its own are OpenAI's, which are part of the program.\n\n"
      "Examples:\n"
      "  varve convert tiny.en.pt -o ggml-tiny.en.bin\n"
      "  varve convert faster-whisper-base/model.bin -o ggml-base-q8_0.bin --type q8_0\n"
      "  varve convert whisper-base -o ggml-base-q5_1.bin --type q5_1");
  command->callback(varve::cli::Action(options, varve::cli::ConvertModel, exit_code));
}
