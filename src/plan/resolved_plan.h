// ResolvePlan: from what a user wrote to what a cache does, in one pass. Checks the plan, puts
// fallbacks in place, fills in defaults and gives one LayerForm per layer and the settings of the
// whole cache.
//
// Pure but for the files that PlanRungs and PlanCompressors read. Thread-safe for different
// sources.

#ifndef VARVE_PLAN_RESOLVED_PLAN_H_
#define VARVE_PLAN_RESOLVED_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layer_plan.h"
#include "plan/plan_compressors.h"
#include "plan/plan_rungs.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// Of the whole cache: PlanSettings with defaults filled in.
struct PackSettings {
  int threads = 1;
  int max_queue = 256;                          // groups
  int decode_cache_pages = 0;                   // restored beside their packed form
  bool prefetch = true;                         // workers restore the next layer's pages ahead
  std::string spill_file;                       // empty: none
  uint64_t spill_bytes = uint64_t{1024} << 20;  // its cap
  uint64_t keep_bytes = 0;  // packed bytes that stay in memory, with a spill file
};

struct ResolvedPlan {
  Plan plan;         // as it runs: normalized, every fallback in place of what could not run
  CacheShape shape;  // page_tokens filled in
  std::vector<LayerForm> layers;
  PackSettings packing;
  std::vector<FallbackUse> fallbacks;
  std::vector<std::string> notes;  // what the plan says and runs otherwise, rounded
};

// Where codebooks and compressors come from; a null pointer is "not looked for".
struct PlanSources {
  PlanRungs* rungs = nullptr;
  PlanCompressors* compressors = nullptr;
};

// The shape's layers and dimensions must be within the limits of CacheShape; page_tokens may be 0.
// Fails with the clause and the reason where the plan is not valid, not in this build, or does not
// fit the shape. Without sources it says what a plan means: codebooks and compressors are taken to
// be there, fallback= stays unused.
Result<ResolvedPlan> ResolvePlan(const Plan& plan, const CacheShape& shape,
                                 const PlanSources& sources = {});

}  // namespace varve

#endif  // VARVE_PLAN_RESOLVED_PLAN_H_
