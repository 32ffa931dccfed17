// LayerPlan: what a plan means for one layer of one cache, with defaults filled in, names turned
// into rungs and every check done. The cache works from these and never looks at the Plan again.
//
// Values without shared state; rungs live for the whole process, or as long as the PlanRungs that
// made them.

#ifndef VARVE_PLAN_LAYER_PLAN_H_
#define VARVE_PLAN_LAYER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan_compressors.h"
#include "plan/plan_rungs.h"
#include "retention/retention.h"
#include "rungs/rung.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// Lossless packing of a layer's cold pages (pack=).
struct PackRule {
  enum class Mode { kProbe, kFull, kStore };
  Mode mode = Mode::kProbe;
  int64_t hot_sink_tokens = 16;     // of the tokens that are kept, the first
  int64_t hot_recent_tokens = 256;  // and the last so many are never packed
  int64_t bootstrap_tokens = 32;    // cold tokens that make the first group,
  int64_t step_tokens = 256;        // and every later one
  bool operator==(const PackRule&) const = default;
};

// Of the whole cache; where rules differ the largest counts.
struct PackSettings {
  int threads = 1;
  int max_queue = 256;                          // groups
  int decode_cache_pages = 0;                   // restored beside their packed form
  bool prefetch = true;                         // workers restore the next layer's pages ahead
  std::string spill_file;                       // empty: none
  uint64_t spill_bytes = uint64_t{1024} << 20;  // its cap
  uint64_t keep_bytes = 0;  // packed bytes that stay in memory, with a spill file
};

// The learned compressor of a layer (fold=).
struct FoldRule {
  const Compressor* compressor = nullptr;  // null: not looked for, the plan is only counted
  int64_t image_tokens = 0;                // the first so many are an image's
  bool restart_positions = false;          // folded rows count as tokens of their own
  bool operator==(const FoldRule&) const = default;
};

struct LayerPlan {
  // The rungs of a full page from an age on. Age = next position - end position of the page.
  struct Stage {
    const Rung* k = nullptr;
    const Rung* v = nullptr;
    int64_t from_age = 0;
    bool operator==(const Stage&) const = default;
  };

  const Rung* open_rung = nullptr;  // filling pages, and full ones younger than the first stage
  // Ascending in from_age, never empty: stage i holds while stages[i].from_age <= age and age <
  // stages[i + 1].from_age. The first from_age is open=N. Neighbours differ.
  std::vector<Stage> stages;
  int64_t window_tokens = 0;  // 0: none
  int64_t sink_tokens = 0;    // kept by the window
  std::optional<RetentionRule> retention;
  // Stages from this index on are no matter of age: evict=demote sinks pages to them by score.
  // Level 0 of the rule is any stage before, level i is stage first_demotion + i - 1.
  int first_demotion = 0;

  std::optional<PackRule> pack;
  std::optional<FoldRule> fold;

  static constexpr int64_t kNeverByAge = int64_t{1} << 60;

  bool operator==(const LayerPlan&) const = default;
  // Equal but for packing; pq rungs are compared by name, whatever their codebooks, and folding by
  // its segments and positions, whatever the networks.
  bool GivesSameValues(const LayerPlan& other) const;

  // The stage of a full page of that age, or null while it stays open.
  const Stage* StageAt(int64_t age) const;
};

// One LayerPlan per layer. The shape's layers and dimensions must be within the limits of
// CacheShape; page_tokens may be 0. Fails with the clause and the reason where the plan is not
// valid, not in this build, or does not fit the shape. Without `rungs` pq rungs have no codebook,
// and fallback= is not looked at; without `compressors` fold= has none: for what a plan means and
// costs.
Result<std::vector<LayerPlan>> ResolvePlan(const Plan& plan, const CacheShape& shape,
                                           PlanRungs* rungs = nullptr,
                                           PlanCompressors* compressors = nullptr);

PackSettings ResolvePackSettings(const Plan& plan);

}  // namespace varve

#endif  // VARVE_PLAN_LAYER_PLAN_H_
