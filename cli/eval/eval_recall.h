// `varve eval recall`: how many facts of a long text a model still finds with each plan.

#ifndef VARVE_CLI_EVAL_EVAL_RECALL_H_
#define VARVE_CLI_EVAL_EVAL_RECALL_H_

#include <nlohmann/json.hpp>
#include <span>

#include "cli/eval/eval_inputs.h"
#include "runtime/eval/recall_evaluator.h"
#include "runtime/eval/recall_prompts.h"
#include "varve/status.h"

namespace varve::cli {

struct EvalRecallOptions : EvalOptions {
  EvalRecallOptions() { plans = {"f16", "q8_0", "q4_0r"}; }
  RecallOptions recall;  // its ctx comes from `ctx`
};

// Prints a table to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C.
Status EvalRecall(const EvalRecallOptions& options);

// One row per plan, f16 first; the answers that missed are in it. `plans` are those of the rows
// after the first.
nlohmann::ordered_json RecallRows(const RecallResult& result, const RecallOptions& options,
                                  std::span<const EvalPlan> plans, const CacheShape& shape);

}  // namespace varve::cli

#endif  // VARVE_CLI_EVAL_EVAL_RECALL_H_
