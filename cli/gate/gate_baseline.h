// Baselines of `varve gate` that are not of the run itself: the speed of f16 in an earlier summary,
// or the median of the last runs on this machine (a file of JSON lines that every run adds to).

#ifndef VARVE_CLI_GATE_GATE_BASELINE_H_
#define VARVE_CLI_GATE_GATE_BASELINE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/gate/gate_verdict.h"
#include "varve/status.h"

namespace varve::cli {

// A history with fewer runs of this machine and model is no baseline yet.
inline constexpr int kMinHistoryRuns = 3;

struct GateBaseline {
  std::map<std::string, FixedSpeed> speeds;  // by bucket; empty: the baseline of the run
  std::string said = "same run";             // for people
};

// What tells machines apart: processor, cores, instruction set, last-level cache. 16 hex digits.
std::string MachineFingerprint();

// What tells runs apart that can be compared.
struct GatePlace {
  std::string machine;
  std::string model;
};

// Refuses a summary of another machine or model.
Result<GateBaseline> ReadBaselineFile(const std::string& path, const GatePlace& place);

// The median of the last `runs` that are of this place; a file that is not there is an empty
// history. Lines that cannot be read are refused, with their number.
Result<GateBaseline> ReadHistory(const std::string& path, const GatePlace& place, int runs);

// Adds a line for the summary of a run.
Status AppendHistory(const std::string& path, const GatePlace& place,
                     const nlohmann::ordered_json& summary);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_BASELINE_H_
