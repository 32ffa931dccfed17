// `varve gate`: measures what the project promises on a model, case by case, and decides.

#ifndef VARVE_CLI_GATE_GATE_RUN_H_
#define VARVE_CLI_GATE_GATE_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/gate/gate_lane.h"
#include "varve/status.h"

namespace varve::cli {

struct GateOptions {
  std::string model;                // empty: the embedded one
  std::string output = "out/gate";  // folder for summary.json and report.html
  std::string cases;                // folder; empty: the embedded ones
  std::vector<std::string> names;   // only these cases; empty: all
  std::string prompts;              // folder of texts; empty: the shipped passages
  std::string turns;                // file of conversations
  std::string text;                 // for KL and recall; empty: the evaluation text
  std::string baseline;             // an earlier summary.json
  std::string history;              // JSON lines
  int history_runs = 7;             // of the history, the last so many
  int runs = 1;
  int retries = -1;  // of a speed within the noise; -1: 3, quick 1
  int threads = 0;   // 0: all cores
  bool quick = false;
  bool quality = true;
  GateFault fault = GateFault::kNone;
  std::string command;  // as typed
};

// Undecided: interrupted before anything failed, or no case is for the model.
enum class GateVerdict { kPassed, kFailed, kUndecided };

// Writes the summary and the report, prints the table. An error means that the gate could not run:
// nothing was decided.
Result<GateVerdict> RunGate(const GateOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_RUN_H_
