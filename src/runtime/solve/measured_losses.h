// MeasuredLosses: the probes that the additive model of losses (loss_model.h) stands on.
//
// For each part one probe per candidate, with the rung in all layers and the other part exact; and
// one probe per layer, or per few neighbouring layers where there are many, with the lowest rung
// that does not ruin the model. Everything else stays in f16.

#ifndef VARVE_RUNTIME_SOLVE_MEASURED_LOSSES_H_
#define VARVE_RUNTIME_SOLVE_MEASURED_LOSSES_H_

#include <cstddef>
#include <cstdint>

#include "runtime/solve/loss_model.h"
#include "runtime/solve/plan_probe.h"
#include "runtime/solve/plan_space.h"
#include "runtime/solve/solve_meter.h"
#include "varve/status.h"

namespace varve {

struct MeasuredLosses {
  PartLosses keys;  // rungs as in the space
  PartLosses values;
  size_t key_signal = 0;    // the rung of keys.layers
  size_t value_signal = 0;  // the rung of values.layers
};

// Tokens that MeasureLosses will compute, for the meter.
int64_t LossTokens(const PlanProbe& probe, const PlanSpace& space);

// f16 must be a candidate. The probe's windows have been read.
Result<MeasuredLosses> MeasureLosses(PlanProbe& probe, const PlanSpace& space,
                                     const ExactTokens& exact, SolveMeter& meter);

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_MEASURED_LOSSES_H_
