// The metrics of a cache (docs/metrics.md) in the rows of `run`, `eval` and `bench decode`: the
// names and values of varve/properties.h.

#ifndef VARVE_CLI_REPORT_CACHE_METRICS_H_
#define VARVE_CLI_REPORT_CACHE_METRICS_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "varve/cache_stats.h"

namespace varve::cli {

// All of ratios, policies and packing, whatever the plan; those without a meaning are neutral.
void AddCacheMetrics(const CacheMetrics& metrics, nlohmann::ordered_json* row);

// A line that says how many values the plan's rungs could not hold; nothing if they held all.
void PrintNonfinite(const std::string& plan, uint64_t nonfinite_values, std::FILE* out);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_CACHE_METRICS_H_
