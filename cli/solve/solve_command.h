// `varve solve`: finds a plan for a model, for a number of bytes or a loss, and checks it on text
// that it was not solved on.

#ifndef VARVE_CLI_SOLVE_SOLVE_COMMAND_H_
#define VARVE_CLI_SOLVE_SOLVE_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/eval/eval_inputs.h"
#include "varve/status.h"

namespace varve::cli {

struct SolveCommandOptions : EvalOptions {
  SolveCommandOptions() { plans = {}; }
  // What to solve for; at least one.
  std::vector<double> ratios;
  std::vector<double> max_kls;
  std::vector<double> bytes_per_token;
  std::vector<std::string> rungs;  // candidates; empty: CandidateRungs
  int64_t window = 0;              // tokens of a window; 0: 1024, or ctx if that is less
  int64_t windows = 0;             // to solve on, and as many to check on; 0: by the model's size
  int64_t tail = 128;              // tokens that a probe computes per window
  std::string output;              // the plan as JSON
};

// Prints what it found, writes plan and JSON if asked.
Status SolvePlans(const SolveCommandOptions& options);

// Candidates where none are named: the rungs of the table that rows of this shape can have, less
// those that cost as much as f16 and those that need a codebook, whose bytes no plan counts.
std::vector<std::string> CandidateRungs(const CacheShape& shape);

}  // namespace varve::cli

#endif  // VARVE_CLI_SOLVE_SOLVE_COMMAND_H_
