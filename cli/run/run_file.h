// The .varve file of `varve run`: --load continues what --save has kept.
//
// The file holds one sequence and the ids of its tokens. The last token that was sampled is not in
// a cache, since nothing came after it: its id is in the file all the same, and fed first when a
// run goes on.

#ifndef VARVE_CLI_RUN_RUN_FILE_H_
#define VARVE_CLI_RUN_RUN_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/run/run_options.h"
#include "varve/status.h"

namespace varve::cli {

// --load without --kv: the plan is the file's.
Status TakePlanOfFile(RunOptions* options);

struct LoadedText {
  std::vector<int32_t> fed;      // in the cache, by position
  std::vector<int32_t> waiting;  // behind them
};

// Replaces the lane's sequence by the one of the file. Errors name the file and what does not fit:
// another model, another plan, several sequences, token ids that are missing.
Result<LoadedText> LoadText(const std::string& path, const RunSetup& setup, RunSetup::Lane* lane);

// `tokens`: all of the text, those that wait included.
Status SaveText(const std::string& path, const RunSetup& setup, const RunSetup::Lane& lane,
                std::vector<int32_t> tokens);

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_FILE_H_
