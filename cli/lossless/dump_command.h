// `varve dump`: the keys and values of a run as files.

#ifndef VARVE_CLI_LOSSLESS_DUMP_COMMAND_H_
#define VARVE_CLI_LOSSLESS_DUMP_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "varve/status.h"

namespace varve::cli {

struct DumpOptions {
  std::string model;  // empty: the embedded one
  std::string text;   // a file; empty: the evaluation text of the embedded model
  std::string folder;
  int64_t ctx = 2048;
  int64_t chunk = 512;
  std::string dtype = "f16";
  int threads = 0;  // 0: all cores
};

Status DumpToFiles(const DumpOptions& options);

// The first `count` tokens of a text file; an empty path is the evaluation text. Refuses a text
// that is too short, naming both lengths and the `option` that asked for them.
Result<std::vector<int32_t>> ReadTextTokens(const LoadedModel& model, const std::string& path,
                                            int64_t count, const char* option = "--ctx");

}  // namespace varve::cli

#endif  // VARVE_CLI_LOSSLESS_DUMP_COMMAND_H_
