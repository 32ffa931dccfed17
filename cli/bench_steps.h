// Whole decode steps on a synthetic cache: how much of a step goes into BeginStep, Append and
// EndStep (sealing included), and how far the slowest step stands out.

#ifndef VARVE_CLI_BENCH_STEPS_H_
#define VARVE_CLI_BENCH_STEPS_H_

#include "bench_workload.h"

namespace varve::cli {

struct StepCost {
  int layers = 0;
  double median_us = 0;
  double p99_us = 0;        // of all steps, so at least one sealing step in 64 is in it
  double append_share = 0;  // of the summed time of all steps
};

// Fills a cache of 8 layers with the workload and decodes `steps` further tokens.
Result<StepCost> MeasureSteps(const Workload& workload, const Plan& plan, int steps,
                              Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_STEPS_H_
