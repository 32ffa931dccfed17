// What the learned compressor (fold=) did in a run: one line for people, keys for machines.

#ifndef VARVE_CLI_FOLD_FOLD_REPORT_H_
#define VARVE_CLI_FOLD_FOLD_REPORT_H_

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "varve/cache.h"

namespace varve::cli {

// Empty where no layer folds.
std::string FoldLine(const FoldStats& stats);
// The line under the plan's name; nothing where no layer folds.
void PrintFold(const std::string& plan, const FoldStats& stats, std::FILE* out);
// {"layers", "prompts", "tokens", "rows", …}; null where no layer folds.
nlohmann::ordered_json FoldJson(const FoldStats& stats);

}  // namespace varve::cli

#endif  // VARVE_CLI_FOLD_FOLD_REPORT_H_
