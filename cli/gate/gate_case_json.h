// The parts of summary.json that belong to one case.

#ifndef VARVE_CLI_GATE_GATE_CASE_JSON_H_
#define VARVE_CLI_GATE_GATE_CASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "cli/gate/gate_summary.h"

namespace varve::cli {

// An entry of "cases".
nlohmann::ordered_json CaseJson(const CaseOutcome& outcome);

// The prompt that the pictures are of: the longest one that was measured to its end. Null: none.
const PromptFigures* LongestPrompt(const CaseFigures& figures);

// The figure, as the mean over the prompts of a bucket; null where none has it.
nlohmann::ordered_json MeanFigure(const CaseFigures& figures, const std::string& bucket,
                                  const std::string& name);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_CASE_JSON_H_
