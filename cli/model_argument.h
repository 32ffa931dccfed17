// The model that a command works on: a GGUF file or a name given with -m, or the embedded model.

#ifndef VARVE_CLI_MODEL_ARGUMENT_H_
#define VARVE_CLI_MODEL_ARGUMENT_H_

#include <memory>
#include <string>

#include "runtime/gguf/gguf_file.h"
#include "runtime/model/decoder_model.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
class Validator;
}  // namespace CLI

namespace varve::cli {

struct LoadedModel {
  std::string name;  // for people: the file's name, or "the embedded model"
  std::shared_ptr<const GgufFile> file;
  std::shared_ptr<const DecoderModel> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

// -m, --model: `path` becomes the file, also where a name was given (cli/models/found_models.h). A
// name that is nobody's is bad usage. An empty value is refused: a shell variable that is not set
// must not silently be another model. --expect-hash goes into the path as a pin
// (base/pinned_name.h), which LoadModel and GgufFile::Open check.
CLI::Option* AddModelOption(CLI::App& command, std::string& path);

// The same for models of speech: a Whisper file or the name of one. Required; there is no embedded
// one.
// Under another name than -m it may be left out.
CLI::Option* AddSpeechModelOption(CLI::App& command, std::string& path,
                                  const std::string& option = "-m,--model");

// An empty path is the embedded model. Errors name the file.
Result<LoadedModel> LoadModel(const std::string& path);

// --repack auto|on|off: whether the weights get a second copy that decodes faster.
void AddRepackOption(CLI::App& command, std::string& when);

// Does what the option says: "auto" does it where that gains something and the copy takes at most a
// quarter of the memory that is free.
Status RepackModel(const std::string& when, Executor& executor,
                   std::shared_ptr<const DecoderModel>& model);

// --device cpu|cuda: where the model computes and its caches are.
void AddDeviceOption(CLI::App& command, std::string& device);

// Does what the option says: with "cuda", a model on the GPU takes the place of the CPU's.
Status PlaceModel(const std::string& device, Executor& executor,
                  std::shared_ptr<const DecoderModel>& model);

// The check of every --precision: f32, i16 or bf16, which needs AMX; `with_auto`: auto, too.
CLI::Validator PrecisionValidator(bool with_auto = false);

// The whole of a text file; "-" is stdin. Errors name the path; kNotFound where there is none.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODEL_ARGUMENT_H_
