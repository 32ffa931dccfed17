// summary.json of `varve gate`: everything that was measured and decided, for programs and for the
// report. docs/format/gate-summary.md has its fields; some may be added, none is renamed.

#ifndef VARVE_CLI_GATE_GATE_SUMMARY_H_
#define VARVE_CLI_GATE_GATE_SUMMARY_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/gate/gate_case.h"
#include "cli/gate/gate_prompts.h"
#include "cli/gate/gate_verdict.h"
#include "varve/status.h"

namespace varve::cli {

// The name of the baseline's own rows in "speed" and "frontier".
inline constexpr const char* kBaselineName = "baseline";

struct CaseOutcome {
  GateCase gate_case;
  std::string skipped;  // why the case is not for this model; empty: it is
  CaseFigures figures;
  CaseVerdict verdict;
  int rounds = 0;  // most that a prompt was measured
};

struct RunOutcome {
  std::vector<CaseOutcome> cases;
  double seconds = 0;
  bool interrupted = false;

  bool passed() const;  // no case failed, at least one was measured, and nothing is left
  bool failed() const;  // a case failed
};

struct GateReport {
  nlohmann::ordered_json head;      // command, machine, model, settings
  std::vector<GatePrompt> prompts;  // as measured
  std::vector<RunOutcome> runs;     // at least one
};

// "cases" are those of the last run; "spread" is over all.
nlohmann::ordered_json MakeGateSummary(const GateReport& report);

// Ok if the document has the fields of docs/format/gate-summary.md, with the right types; else
// kInternal names the first that has not.
Status CheckGateSummary(const nlohmann::ordered_json& summary);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_SUMMARY_H_
