// What a plan takes beside its pages, and where it ran otherwise than asked: bytes of codebooks (pq
// rungs) and compressors (fold=), the ratio with them included, and the uses of fallback=. For
// `run`, `eval`, `bench decode` and `plan` alike: the JSON keys and lines for people.

#ifndef VARVE_CLI_PLAN_USE_H_
#define VARVE_CLI_PLAN_USE_H_

#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/eval/eval_lane.h"
#include "varve/cache.h"
#include "varve/plan_estimate.h"

namespace varve::cli {

struct PlanUse {
  uint64_t codebook_bytes = 0;
  uint64_t compressor_bytes = 0;
  uint64_t constant_bytes() const { return codebook_bytes + compressor_bytes; }
  // f16 bytes of a sequence of 4096 and of 32768 tokens, over the bytes that the plan holds for
  // them and the constants: these are paid once, so that the ratio grows with the context. NaN
  // with fold=, which does not say how much of the text is the prompt.
  double all_in_4k = std::numeric_limits<double>::quiet_NaN();
  double all_in_32k = std::numeric_limits<double>::quiet_NaN();
  std::vector<FallbackUse> fallbacks;
};

// Where a policy (evict=) has a target, that is what the plan holds.
double AllInRatio(const PlanCost& cost, uint64_t constant_bytes);

// The plan with what took the place of rungs that could not run, and nothing left to fall back.
Plan PlanAsRun(Plan plan, const CacheShape& shape, std::span<const FallbackUse> fallbacks);

// `of_cache` is that of the plan's cache: where a rung fell back, the ratios are of what ran.
PlanUse MakePlanUse(const Plan& plan, const CacheShape& shape, const CacheUse& of_cache);

// codebook_bytes, compressor_bytes, ratio_all_in_4k, ratio_all_in_32k, fallbacks: always.
void AddPlanUseKeys(const PlanUse& use, nlohmann::ordered_json* row);
nlohmann::ordered_json FallbacksJson(const std::vector<FallbackUse>& fallbacks);

// "layers 0-7 k: pq64x8 -> q4_0r: no codebook"
std::string FallbackText(const FallbackUse& use);
// A line each, "fallback: ..." under the plan's name; nothing where all ran as asked.
void PrintFallbacks(const std::string& plan, const std::vector<FallbackUse>& fallbacks,
                    std::FILE* out);

// Of the rows of an evaluation: f16's first, then those of `plans`. Result: PlanQuality,
// PlanRecall.
template <typename Row>
std::vector<PlanUse> UsesOf(const std::vector<Row>& rows, std::span<const EvalPlan> plans,
                            const CacheShape& shape) {
  std::vector<PlanUse> uses;
  for (size_t i = 0; i < rows.size(); ++i) {
    uses.push_back(MakePlanUse(i == 0 ? Plan() : plans[i - 1].plan, shape, rows[i].use));
  }
  return uses;
}
bool AnyConstants(const std::vector<PlanUse>& uses);

// Cells of the columns "constants", "all-in 4K", "all-in 32K", for tables in which some plan has
// codebooks or a compressor.
std::vector<std::string> PlanUseHeaders();
std::vector<std::string> PlanUseCells(const PlanUse& use);
void Extend(std::vector<std::string>& cells, const std::vector<std::string>& more);
// Says under the table what those columns are.
void PrintAllInNote(std::FILE* out);

}  // namespace varve::cli

#endif  // VARVE_CLI_PLAN_USE_H_
