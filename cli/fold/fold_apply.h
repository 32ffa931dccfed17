// `varve fold apply`: a prompt is read by a model and folded; what that takes and saves.

#ifndef VARVE_CLI_FOLD_FOLD_APPLY_H_
#define VARVE_CLI_FOLD_FOLD_APPLY_H_

#include <cstdint>
#include <string>

#include "varve/cache.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct FoldApplyOptions {
  std::string compressor;  // a file, or "shipped"
  std::string model;       // empty: the embedded one
  std::string text;        // empty: the evaluation text of the embedded model
  std::string rest;        // --kv: what else the plan says
  int64_t tokens = 2048;
  int64_t image = 0;
  bool restart = false;
  int threads = 0;
  std::string output;  // a .varve file; empty: none
  std::string json;
};

// The plan with fold= in each of its rules; in a rule for all layers if it has none.
Result<Plan> FoldPlan(const FoldApplyOptions& options);

Status ApplyCompressor(const FoldApplyOptions& options);
void AddFoldApply(CLI::App* parent, int* exit_code);

}  // namespace varve::cli

#endif  // VARVE_CLI_FOLD_FOLD_APPLY_H_
