// `varve inspect` of a Whisper model: a ggml file, a .pt of OpenAI or a model.bin of CTranslate2.
// The whole file is read, so that what is shown can be transcribed with.

#ifndef VARVE_CLI_INSPECT_INSPECT_WHISPER_H_
#define VARVE_CLI_INSPECT_INSPECT_WHISPER_H_

#include <string>

#include "cli/inspect/inspect_model.h"
#include "runtime/whisper/whisper_tensors.h"
#include "varve/status.h"

namespace varve::cli {

// By the first bytes; every file of torch.save counts.
bool IsWhisperFile(const std::string& path);

// What it is as lines for people, the types of weights as a table behind them.
std::string RenderWhisper(const std::string& path, const WhisperTensors& model, bool colour);

// Prints and writes JSON. `metadata` lists the sizes by the file's own names.
Status InspectWhisper(const InspectModelOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_INSPECT_WHISPER_H_
