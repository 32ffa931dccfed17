#include "cli/bench/bench_steps.h"

#include <algorithm>

#include "base/timer.h"

namespace varve::cli {

Result<StepCost> MeasureSteps(const Workload& workload, const Plan& plan, int steps,
                              Executor& executor) {
  constexpr int kLayers = 8;
  VARVE_ASSIGN_OR_RETURN(FilledCache filled, FillCache(workload, plan, kLayers, 1, executor));
  Cache& cache = *filled.cache;
  const SequenceId sequence = filled.sequences[0];
  std::vector<float> output(workload.queries().size());
  std::vector<double> step_us;
  double append_us = 0;
  double total_us = 0;
  for (int step = 0; step < steps; ++step) {
    const size_t row = static_cast<size_t>(workload.shape().kv_heads) * workload.shape().dim;
    const size_t token = static_cast<size_t>(step % workload.shape().ctx);
    const Timer step_timer;
    double attend_us = 0;
    const StepEntry entry{sequence, 1};
    VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
    for (int layer = 0; layer < kLayers; ++layer) {
      VARVE_RETURN_IF_ERROR(cache.Append(layer, sequence,
                                         {workload.keys().data() + token * row, 1, 0, 0},
                                         {workload.values().data() + token * row, 1, 0, 0}));
      AttendRequest request;
      request.sequence = sequence;
      request.queries = workload.queries().data();
      request.output = output.data();
      const Timer attend_timer;
      VARVE_RETURN_IF_ERROR(cache.Attend(layer, {&request, 1}, {}));
      attend_us += attend_timer.us();
    }
    VARVE_RETURN_IF_ERROR(cache.EndStep());
    step_us.push_back(step_timer.us());
    total_us += step_us.back();
    append_us += step_us.back() - attend_us;
  }
  StepCost cost;
  cost.layers = kLayers;
  cost.append_share = append_us / total_us;
  std::sort(step_us.begin(), step_us.end());
  cost.median_us = step_us[step_us.size() / 2];
  cost.p99_us = step_us[(step_us.size() * 99 + 99) / 100 - 1];
  cost.max_us = step_us.back();
  return cost;
}

}  // namespace varve::cli
