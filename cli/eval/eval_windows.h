// `varve eval ppl` and `varve eval kl`: perplexity and KL divergence of plans on a text, in one run
// with the f16 cache. Both measure the same; their tables begin with what they are named after.

#ifndef VARVE_CLI_EVAL_EVAL_WINDOWS_H_
#define VARVE_CLI_EVAL_EVAL_WINDOWS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/eval/eval_inputs.h"
#include "runtime/eval/window_evaluator.h"
#include "varve/status.h"

namespace varve::cli {

struct EvalWindowsOptions : EvalOptions {
  EvalWindowsOptions() { plans = {"f16", "q8_0", "q4_0", "q4_0r"}; }
  int64_t windows = 8;  // 0: all of the text
  bool prompt_half = false;
  bool rest = false;
  bool by_position = false;
  bool kl_first = false;  // `eval kl`
};

// Prints a table to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C.
Status EvalWindows(const EvalWindowsOptions& options);

// One row per plan, f16 first; figures that there is no data for are null. `plans` are those of the
// rows after the first.
nlohmann::ordered_json WindowRows(const WindowEvalResult& result, std::span<const EvalPlan> plans,
                                  const CacheShape& shape);

}  // namespace varve::cli

#endif  // VARVE_CLI_EVAL_EVAL_WINDOWS_H_
