// What lossless packing (pack=) has done to a cache, for people; for `run`, `eval` and
// `bench decode` alike.

#ifndef VARVE_CLI_LOSSLESS_LOSSLESS_REPORT_H_
#define VARVE_CLI_LOSSLESS_LOSSLESS_REPORT_H_

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "varve/cache.h"
#include "varve/cache_stats.h"

namespace varve::cli {

// "2 layers: 120 pages, 7.5 MiB as 6.1 MiB (1.23) …"; empty where the plan has no pack=.
std::string LosslessLine(const LosslessStats& stats);
void PrintLossless(const std::string& plan, const LosslessStats& stats, std::FILE* out);

// By layer and part, for reports (docs/format/report.md); empty where nothing was packed or tried.
nlohmann::ordered_json LosslessRows(std::span<const LayerReport> layers);

}  // namespace varve::cli

#endif  // VARVE_CLI_LOSSLESS_LOSSLESS_REPORT_H_
