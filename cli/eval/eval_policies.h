// `varve eval policies`: what the policies (evict=) cost in quality at equal bytes. KL divergence,
// perplexity and recall of each policy at each ratio, in one table with the f16 cache.

#ifndef VARVE_CLI_EVAL_EVAL_POLICIES_H_
#define VARVE_CLI_EVAL_EVAL_POLICIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/eval/eval_inputs.h"
#include "runtime/eval/recall_prompts.h"
#include "varve/status.h"

namespace varve::cli {

struct EvalPoliciesOptions : EvalOptions {
  // More plans beside the policies; none unless asked.
  EvalPoliciesOptions() {
    plans = {};
    recall.asked = 40;
    recall.facts = 20;
  }
  std::vector<std::string> policies = {"h2o", "window", "random", "tova", "snapkv", "demote"};
  std::vector<double> ratios = {2, 3.5, 6};
  int64_t windows = 1;
  RecallOptions recall;  // its ctx is that of the windows, less room for the answer; asked 0: none
  // Clauses of every policy's plan. Floors that the highest ratio leaves room for.
  std::string layers = "0-";
  int page = 64;
  int64_t sink = 16;
  int64_t recent = 96;
  int64_t trigger = 0;  // 0: where sink and recent leave room at the highest ratio
  std::string rung;     // that pages are sealed in; empty: f16
};

// Prints the table to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C.
Status EvalPolicies(const EvalPoliciesOptions& options);

// The trigger in force. Policies that plan earlier than this drop what they must not drop later,
// and the comparison would be of the floors.
int64_t PolicyTrigger(const EvalPoliciesOptions& options);

// The plan of a policy at a ratio, as text.
std::string PolicyPlanText(const EvalPoliciesOptions& options, const std::string& policy,
                           const std::string& ratio);

}  // namespace varve::cli

#endif  // VARVE_CLI_EVAL_EVAL_POLICIES_H_
