// The probe of `varve run`: a plan that ruins a model is noticed before the user notices.
//
// Before the text begins, a plan with rungs that are not known to be safe reads a few hundred
// tokens of prose beside the f16 cache (runtime/solve/plan_probe.h). If its predictions are far
// from f16's, a line on stderr says so and names a plan that is better on this model. What was
// found is remembered (probe_memory.h). --no-probe leaves it out.

#ifndef VARVE_CLI_RUN_RUN_PROBE_H_
#define VARVE_CLI_RUN_RUN_PROBE_H_

#include <string>

#include "cli/run/probe_memory.h"
#include "cli/run/run_options.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve::cli {

// KL in nats per token above which text is visibly worse.
inline constexpr double kMaxUnnoticedKl = 0.1;

// Whether the plan has a rung that may ruin a model. Policies and compressors act on longer texts
// than a probe has, and are not probed.
bool NeedsProbe(const Plan& plan);

// The warning, or an empty text if the plan loses at most `max_kl` on the model.
Result<std::string> ProbeWarning(const RunSetup& setup, const std::string& name, const Plan& plan,
                                 const ProbeMemory& memory, double max_kl = kMaxUnnoticedKl);

// Writes the warning of the setup's only plan to stderr, if there is one. A probe that fails is
// told there too and is no error.
void WarnOfLoss(const RunOptions& options, const RunSetup& setup);

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_PROBE_H_
