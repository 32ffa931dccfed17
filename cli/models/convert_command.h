// `varve convert`: a Whisper model of any kind becomes a ggml file, which this program and
// whisper.cpp read.

#ifndef VARVE_CLI_MODELS_CONVERT_COMMAND_H_
#define VARVE_CLI_MODELS_CONVERT_COMMAND_H_

#include <string>

#include "varve/status.h"

namespace varve::cli {

struct ConvertOptions {
  std::string input;   // a file, or the name of a model of speech
  std::string output;  // appears whole or not at all
  std::string type = "f16";
};

// Says on stdout what has been written; progress and notes go to stderr.
Status ConvertModel(const ConvertOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODELS_CONVERT_COMMAND_H_
