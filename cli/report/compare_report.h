// The comparison of plans on one prompt: as text, as JSON rows, and as the document of a report
// (report_page.h).

#ifndef VARVE_CLI_REPORT_COMPARE_REPORT_H_
#define VARVE_CLI_REPORT_COMPARE_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/plan_use.h"
#include "cli/run/run_options.h"

namespace varve::cli {

// What stands in a figure where nothing was measured: a dash for people, null in JSON.
inline constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

// Decoding speed as a ratio to f16's, token by token: median and quartiles. Noise is how far f16's
// odd and even tokens are apart: an A/A comparison within the run.
struct ComparedSpeed {
  double ratio = kNoFigure;
  double low = kNoFigure;
  double high = kNoFigure;
  double noise = kNoFigure;
};
// Seconds per token of f16 and of the plan, as many of each.
ComparedSpeed CompareSpeed(std::span<const double> f16_s, std::span<const double> plan_s);

// One plan after the same prompt. KL, agreement and speed are along the text of the f16 cache, all
// plans in turn at each token.
struct ComparedPlan {
  std::string plan;  // as typed
  std::string text;
  std::vector<int32_t> tokens;
  StopReason stop = StopReason::kMaxTokens;
  CacheFigures memory;   // at the end of this plan's own text
  CacheMetrics metrics;  // likewise
  uint64_t nonfinite_values = 0;
  uint64_t max_bytes = 0;   // --max-bytes, which f16 need not keep to; 0: none
  int64_t tokens_seen = 0;  // by then
  PlanUse use;              // codebooks and fallbacks
  double prompt_tokens_per_s = 0;
  double tokens_per_s = 0;
  double kl_mean = 0;
  double kl_max = 0;
  double same_best = 0;           // share of positions with the same most likely token
  int64_t first_difference = -1;  // index of the first token that differs from f16's; -1: none
  ComparedSpeed speed;
  bool fits() const { return max_bytes == 0 || memory.bytes <= max_bytes; }
  // For the report; null where nothing was recorded (docs/format/report.md).
  nlohmann::ordered_json pages;                                       // memory by page state
  nlohmann::ordered_json spans;                                       // which tokens are where
  nlohmann::ordered_json trace;                                       // what a policy decided
  nlohmann::ordered_json lossless = nlohmann::ordered_json::array();  // what packing saved
};

struct Comparison {
  std::string model;
  std::string shape;  // "10 layers, 6 heads on 2 KV heads of 64"
  std::string prompt;
  int64_t prompt_tokens = 0;
  int64_t scored_tokens = 0;  // positions behind kl_mean
  std::string sampling;       // "greedy", "temperature 0.8, seed 1"
  std::string command;
  std::vector<ComparedPlan> plans;  // the first is f16
};

// "constants, once for the model and in no other figure: pq4 2.01 MiB, pq2 1.07 MiB"; empty if no
// plan has one.
std::string ConstantsNote(const std::vector<ComparedPlan>& plans);

// The comparison as text: one line under the text of a plan (`reference`: of f16, which has none
// itself), and the table at the end; and as JSON, one row per plan.
void PrintFigures(const ComparedPlan& plan, const ComparedPlan* reference, std::FILE* out);
void PrintComparison(const Comparison& comparison, std::FILE* out);
nlohmann::ordered_json ComparisonRows(const Comparison& comparison);

// The document of the report, and its page.
nlohmann::ordered_json ComparisonDocument(const Comparison& comparison);
Status WriteComparison(const std::string& path, const Comparison& comparison);

// A KL divergence for people: "0", "0.00012", "0.013"; "–" for kNoFigure.
std::string HumanDivergence(double kl);
// "98.4 %", "12.5": shares and other figures with decimals; "–" for kNoFigure.
std::string HumanPercent(double share);
std::string HumanFigure(double value, int decimals);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_COMPARE_REPORT_H_
