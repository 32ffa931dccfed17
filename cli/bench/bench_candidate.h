// One plan under measurement: the cache that holds it, the check of its outputs, its times.

#ifndef VARVE_CLI_BENCH_BENCH_CANDIDATE_H_
#define VARVE_CLI_BENCH_BENCH_CANDIDATE_H_

#include <memory>
#include <string>
#include <vector>

#include "cli/bench/bench_workload.h"
#include "plan/resolved_plan.h"

namespace varve::cli {

struct Candidate {
  std::string plan;    // as typed
  bool noise = false;  // the baseline's own cache, timed a second time
  std::shared_ptr<FilledCache> filled;
  bool reaches_working_set = true;  // with all layers together
  Error error;                      // against the originals; of the worst layer
  Error kernel_error;               // against the decoded rows; of the worst layer
  std::vector<double> us;           // one per repetition: time of one layer
  StageTimes stages;                // of all timed calls, where stages are timed,
  double calls = 0;                 // and their number
  std::vector<float> output;        // [batch, heads, dim] of the last layer, checked
};

// The most that attention may differ, in RMS, from double precision over the same decoded rows. It
// follows the coarsest rung of the layer: kernels round queries and weights to 15 bits in q8_0 and
// to 8 bits in q4_0, and nothing but f32 sums in the float rungs.
double KernelErrorLimit(const LayerForm& layer);

// Checks every layer before anything is timed, and keeps the last layer's output. The first layer
// of each kind (all layers of a plan without ranges are of one kind) is compared with double
// precision; the others hold the same rows and must agree with it bit for bit, as must all
// sequences of the batch.
Status CheckAnswers(Candidate& candidate, const Workload& workload, Executor& executor);

// Adds to `us` the time of one layer from one pass over all of them, repeated until the clock is
// good enough when the cache is small. The last output must still be the checked one.
Status TimeLayer(Candidate& candidate, const Workload& workload);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_CANDIDATE_H_
