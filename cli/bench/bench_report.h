// The tables and JSON rows of `varve bench attention`.

#ifndef VARVE_CLI_BENCH_BENCH_REPORT_H_
#define VARVE_CLI_BENCH_BENCH_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/bench_candidate.h"
#include "cli/bench/bench_steps.h"

namespace varve::cli {

double Median(std::vector<double> values);

// What the rows of one table have in common.
struct BenchCase {
  WorkloadShape shape;
  int threads = 1;
  int batch = 1;
  double bandwidth = 0;    // bytes per second, measured between the repetitions
  bool breakdown = false;  // stages were timed: a second table
};

// candidates[0] is the baseline; each has at least one time. One table, one JSON row each.
void ReportCase(const BenchCase& bench, const std::vector<Candidate>& candidates, std::FILE* out,
                nlohmann::ordered_json& rows);

struct PlanSteps {
  std::string plan;
  StepCost cost;
};
void ReportSteps(const BenchCase& bench, const std::vector<PlanSteps>& plans, int steps,
                 std::FILE* out, nlohmann::ordered_json& rows);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_REPORT_H_
