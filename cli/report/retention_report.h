// What the policies of a plan (evict=) have done to a cache, for `run`, `eval` and `bench decode`
// alike: the JSON keys, a line for people, and the bound that sink and recent set.

#ifndef VARVE_CLI_REPORT_RETENTION_REPORT_H_
#define VARVE_CLI_REPORT_RETENTION_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "varve/cache.h"
#include "varve/plan.h"

namespace varve::cli {

// Of one cache at one moment, taken while its sequences live.
struct RetentionReport {
  RetentionStats stats;
  double whole_ratio = 0;   // f16 bytes of all tokens seen / bytes held and tables, all layers
  int64_t tokens = 0;       // seen by a sequence
  double target_ratio = 0;  // that the plan asks for in its layers; 0: a budget in bytes
  // The best ratio of those layers at `tokens` that sink, recent, the page that grows and the one
  // that comes next leave room for.
  double ratio_bound = 0;

  bool has_policy() const { return stats.layers > 0; }
};

// f16 bytes of all tokens that live sequences have seen / bytes held and tables; 0 if there are
// none.
double WholeRatio(const CacheStats& stats);

// `tokens` are those of one sequence.
RetentionReport MakeRetentionReport(const Plan& plan, const CacheShape& shape,
                                    const RetentionStats& stats, double whole_ratio,
                                    int64_t tokens);

// Adds the metrics to a row; nothing where the plan has no policy.
void AddRetentionKeys(const RetentionReport& report, nlohmann::ordered_json* row);

// One line without a newline; empty where the plan has no policy.
std::string RetentionLine(const RetentionReport& report);

// Says that the floors made the target impossible, with the bound; empty where they did not.
std::string FloorNote(const RetentionReport& report);

// Prints both under the plan's name, where there is something to say.
void PrintRetention(const std::string& plan, const RetentionReport& report, std::FILE* out);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_RETENTION_REPORT_H_
