// What EstimatePlan says of a plan, as a table and as JSON: `varve plan` and `varve inspect plan`.

#ifndef VARVE_CLI_INSPECT_PLAN_REPORT_H_
#define VARVE_CLI_INSPECT_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/plan_estimate.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct PlanReportOptions {
  std::string plan;             // as typed
  std::string model;            // a GGUF file that gives shape and codebook,
  bool embedded_model = false;  // or the embedded one; else the shape is:
  int layers = 32;
  int heads = 32;
  int kv_heads = 8;
  int dim = 128;
  int64_t ctx = 4096;
  std::vector<std::string> devices;  // whose read times to tell: see read_time.h
  std::string json;                  // file, "-", or empty
};

// Registers the options on a subcommand; `options` must outlive the parse.
void AddPlanReportOptions(CLI::App* command, PlanReportOptions* options);

// Prints the report; returns the exit code.
int ReportPlan(const PlanReportOptions& asked);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_PLAN_REPORT_H_
