// The model that a command works on: a GGUF file named by -m, or the embedded model.

#ifndef VARVE_CLI_MODEL_ARGUMENT_H_
#define VARVE_CLI_MODEL_ARGUMENT_H_

#include <memory>
#include <string>

#include "runtime/gguf/gguf_file.h"
#include "runtime/llama/llama_model.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve::cli {

struct LoadedModel {
  std::string name;  // for people: the file's name, or "the embedded model"
  std::shared_ptr<const GgufFile> file;
  std::shared_ptr<const LlamaModel> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

// An empty path is the embedded model.
Result<LoadedModel> LoadModel(const std::string& path);

// The whole of a text file. Errors name the path.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODEL_ARGUMENT_H_
