// What a plan means and costs, before anything runs: the stages of every layer range, and the bytes
// of one sequence at a context length. Shared by `varve plan` and `varve inspect plan`.
//
// `bytes` is what the page pool holds: a page takes a slot, rounded up to 256 bytes. The payload in
// it stands beside. Page tables (below 1 % but for tiny pages) are not counted.

#ifndef VARVE_CLI_INSPECT_PLAN_REPORT_H_
#define VARVE_CLI_INSPECT_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan_compressors.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

// Pages of one layer that are in one state.
struct StageCost {
  std::string state;  // "filling", "open", "sealed" or "dropped"
  std::string age;    // "0-127", "512-"
  std::string k;      // rung names; empty where dropped
  std::string v;
  int64_t pages = 0;
  int64_t tokens = 0;          // rows in those pages
  uint64_t layer_bytes = 0;    // slots in one layer; a filling page counts whole
  uint64_t layer_payload = 0;  // what of them is rows and scales
};

struct RangeCost {
  int first_layer = 0;
  int last_layer = 0;  // inclusive
  std::vector<StageCost> stages;
  uint64_t bytes = 0;  // all layers of the range
  uint64_t payload = 0;
  // What evict= aims at, in these layers or, with budget=, in all; 0 without it and before its
  // trigger. `bytes` is without it.
  uint64_t policy_bytes = 0;
  bool has_budget = false;
};

struct PlanCost {
  std::vector<RangeCost> ranges;  // neighbouring layers with the same plan are one range
  int page_tokens = 0;
  uint64_t bytes = 0;
  uint64_t payload = 0;
  uint64_t bytes_f16 = 0;  // every token of every layer in plain f16
};

// The cost of one sequence of num_tokens, page by page. Fails where the plan cannot run. With
// `compressors` fold= counts, as if all tokens were the prompt.
Result<PlanCost> CostOfPlan(const Plan& plan, const CacheShape& shape, int64_t num_tokens,
                            PlanCompressors* compressors = nullptr);

struct PlanReportOptions {
  std::string plan;             // as typed
  std::string model;            // a GGUF file that gives shape and codebook,
  bool embedded_model = false;  // or the embedded one; else the shape is:
  int layers = 32;
  int heads = 32;
  int kv_heads = 8;
  int dim = 128;
  int64_t ctx = 4096;
  std::string json;  // file, "-", or empty
};

// Registers the options on a subcommand; `options` must outlive the parse.
void AddPlanReportOptions(CLI::App* command, PlanReportOptions* options);

// Prints the report; returns the exit code.
int ReportPlan(const PlanReportOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_PLAN_REPORT_H_
