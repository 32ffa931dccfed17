// What `varve gate` tells people: a row per case, then why each case that did not pass did not.

#ifndef VARVE_CLI_GATE_GATE_TABLE_H_
#define VARVE_CLI_GATE_GATE_TABLE_H_

#include <cstdio>

#include "cli/gate/gate_summary.h"

namespace varve::cli {

void PrintGateTable(const RunOutcome& run, std::FILE* out);

// "FAILED runtime_store, 2048 tokens: …", a line per gate; then what was left out.
void PrintGateReasons(const RunOutcome& run, std::FILE* out);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_TABLE_H_
