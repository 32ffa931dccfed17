// Whole decode steps on a synthetic cache: how much of a step goes into BeginStep, Append and
// EndStep (sealing included), and how far the slow steps stand out.

#ifndef VARVE_CLI_BENCH_BENCH_STEPS_H_
#define VARVE_CLI_BENCH_BENCH_STEPS_H_

#include "cli/bench/bench_workload.h"

namespace varve::cli {

struct StepCost {
  int layers = 0;
  double median_us = 0;
  // The least time that 99 % of the steps do not exceed. It says nothing of sealing where fewer
  // than one step in 100 seals (page=128, few steps): max_us does.
  double p99_us = 0;
  double max_us = 0;        // the slowest step
  double append_share = 0;  // of the summed time of all steps
};

// Fills a cache of 8 layers with the workload and decodes `steps` (> 0) further tokens.
Result<StepCost> MeasureSteps(const Workload& workload, const Plan& plan, int steps,
                              Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_STEPS_H_
