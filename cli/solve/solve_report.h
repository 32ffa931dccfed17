// What `varve solve` says: the losses it measured, and per target the plan beside the best pair of
// rungs for all layers, on the text that it was solved on and on the other.

#ifndef VARVE_CLI_SOLVE_SOLVE_REPORT_H_
#define VARVE_CLI_SOLVE_SOLVE_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "runtime/eval/window_evaluator.h"
#include "runtime/solve/plan_solver.h"

namespace varve::cli {

struct SolvedTarget {
  std::string target;  // "ratio 4"
  SolvedPlan solved;
  PlanQuality checked;  // on the other text
  std::optional<PlanQuality> uniform_checked;
};

struct SolveReport {
  const PlanSolver* solver = nullptr;
  std::span<const SolvedTarget> targets;
  int64_t window_tokens = 0;
  int64_t num_windows = 0;  // to solve on, and as many to check on
};

void PrintSolveReport(const SolveReport& report, std::FILE* out);
// Rows of role "solved" and "uniform" per target, of role "rung" per candidate, and of role
// "layer".
nlohmann::ordered_json SolveRows(const SolveReport& report);

}  // namespace varve::cli

#endif  // VARVE_CLI_SOLVE_SOLVE_REPORT_H_
