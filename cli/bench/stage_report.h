// Time by stage (`bench ... --breakdown`): one table for the plans of a case, and the keys of their
// JSON rows. Times are summed over threads, so that stages add up whatever ran beside them.

#ifndef VARVE_CLI_BENCH_STAGE_REPORT_H_
#define VARVE_CLI_BENCH_STAGE_REPORT_H_

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "varve/cache.h"

namespace varve::cli {

// What was added to the sums of a cache between two looks at its statistics.
StageTimes StagesBetween(const StageTimes& before, const StageTimes& after);
void AddStages(const StageTimes& times, StageTimes* sum);

// A plan, and what its times are divided by.
struct StageRow {
  std::string plan;
  StageTimes times;    // of `calls` calls
  double calls = 0;    // Attends of a layer, or steps of a model
  double wall_us = 0;  // of one call
  int threads = 1;
  double token_heads = 0;  // tokens times KV heads (times layers) that a call reads
  // Where the cache was filled under the clock: what that took. All zero otherwise.
  StageTimes filling;
};

// One line per plan: microseconds and share of each stage in one call, nanoseconds per token and
// KV head, and what filling cost per row. `call` names a call: "layer", "step".
void PrintStages(const std::string& call, const std::vector<StageRow>& rows, std::FILE* out);

// stage_us: {prepare, scores, softmax, values, merge, encode, append} of one call, and
// stage_ns_per_token_head: {prepare, ... merge}; where filling was timed also
// fill_ns_per_row: {encode, append} of one K or V row of one head.
void AddStageKeys(const StageRow& row, nlohmann::ordered_json* json);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_STAGE_REPORT_H_
