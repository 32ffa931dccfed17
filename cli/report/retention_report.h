// What the policies of a plan (evict=) have done to a cache, for people; for `run`, `eval` and
// `bench decode` alike.

#ifndef VARVE_CLI_REPORT_RETENTION_REPORT_H_
#define VARVE_CLI_REPORT_RETENTION_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "varve/cache_stats.h"

namespace varve::cli {

// `tokens` are those that a sequence has seen.

// One line without a newline; empty where the plan has no policy.
std::string RetentionLine(const CacheMetrics& metrics, int64_t tokens);

// Says that the floors made the target impossible, with the bound; empty where they did not.
std::string FloorNote(const RetentionStats& stats, int64_t tokens);

// Prints both under the plan's name, where there is something to say.
void PrintRetention(const std::string& plan, const CacheMetrics& metrics, int64_t tokens,
                    std::FILE* out);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_RETENTION_REPORT_H_
