// Quality of the plans of `varve gate`: KL divergence and recall, by the evaluators of `varve eval`
// (src/runtime/eval). Plans that differ in pack= alone predict the same bit for bit, which the gate
// checks on its prompts; they are evaluated once.

#ifndef VARVE_CLI_GATE_GATE_QUALITY_H_
#define VARVE_CLI_GATE_GATE_QUALITY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/model_argument.h"
#include "runtime/eval/eval_lane.h"
#include "varve/executor.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve::cli {

struct GateQualityOptions {
  int64_t ctx = 2048;   // of windows and recall prompts; less where the model's context is less
  int64_t windows = 2;  // of the text
  int asked = 20;       // recall questions
  int facts = 10;       // in one prompt
};

// By name: kl_mean, kl_sem, kl_p99, top1, ppl, ppl_f16, dlnppl, bytes_per_token, recall (part of
// the questions), recall_loss (against f16), recall_hits, recall_asked, recall_f16_hits, and ctx,
// windows, tokens. A figure that could not be taken is not there.
using GateQuality = std::map<std::string, double>;

// One per plan, in their order. The first half of each window is the prompt, the second half is
// scored: so figures do not depend on which plans are measured together. `progress` is that of the
// evaluators; where it stops them, what is complete is returned.
Result<std::vector<GateQuality>> MeasureQuality(
    const LoadedModel& model, std::string_view text, const std::vector<Plan>& plans,
    const GateQualityOptions& options, Executor& executor,
    const std::function<bool(double, std::string_view)>& progress);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_QUALITY_H_
