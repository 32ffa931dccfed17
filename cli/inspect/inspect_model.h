// `varve inspect model.gguf`: what a model file is, without loading the model.

#ifndef VARVE_CLI_INSPECT_INSPECT_MODEL_H_
#define VARVE_CLI_INSPECT_INSPECT_MODEL_H_

#include <string>

namespace varve::cli {

struct InspectModelOptions {
  std::string path;
  bool tensors = false;   // list them
  bool metadata = false;  // list the keys
  std::string json;       // file, "-", or empty
};

// Prints, writes JSON, and returns the exit code.
int InspectModel(const InspectModelOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_INSPECT_MODEL_H_
