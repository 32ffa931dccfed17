// LayerPlan: what a plan means for one layer of one cache, with defaults filled in, names turned
// into rungs and every check done. The cache works from these and never looks at the Plan again.
//
// It comes in two forms. LayerForm names its rungs by their descriptors: enough for files,
// estimates and reports. LayerPlan has the rungs themselves, bound to kernels and codebooks
// (PlanRungs::Bind): what a cache needs to encode and attend.
//
// Values without shared state; rungs live as long as the PlanRungs that made them.

#ifndef VARVE_PLAN_LAYER_PLAN_H_
#define VARVE_PLAN_LAYER_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retention/retention.h"
#include "rungs/rung.h"
#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/compressor.h"
#include "varve/plan.h"

namespace varve {

// Lossless packing of a layer's cold pages (pack=).
struct PackRule {
  PackingMode mode = PackingMode::kProbe;
  int64_t hot_sink_tokens = 16;     // of the tokens that are kept, the first
  int64_t hot_recent_tokens = 256;  // and the last so many are never packed
  int64_t bootstrap_tokens = 32;    // cold tokens that make the first group,
  int64_t step_tokens = 256;        // and every later one
  int64_t block_tokens = 0;         // pages go out in whole blocks of so many; 0: a page
  PackCodec codec = PackCodec::kVarve;
  // Of gear: what is tried for K and for V, by id.
  std::vector<int> predictors_k = {0, 1, 2, 3};
  std::vector<int> predictors_v = {0, 1, 2};
  bool zstd = true;           // of gear; else RLE alone
  bool strict = true;         // unpacked bytes are compared, not only their checksum
  int layer_cache_pages = 0;  // restored pages of the layer's own, beside the shared ones
  int64_t sample_tokens = 1;  // probe: one page in so many tokens
  bool operator==(const PackRule&) const = default;
};

// The learned compressor of a layer (fold=).
struct FoldRule {
  const Compressor* compressor = nullptr;  // null: not looked for, the plan is only counted
  int64_t image_tokens = 0;                // the first so many are an image's
  bool restart_positions = false;          // folded rows count as tokens of their own
  bool operator==(const FoldRule&) const = default;
};

// All of a layer's plan but its rungs.
struct LayerTerms {
  int64_t exact_tokens = 0;   // pages that touch the first so many stay in the open rung
  int64_t window_tokens = 0;  // 0: none
  int64_t sink_tokens = 0;    // kept by the window
  std::optional<RetentionRule> retention;
  // Stages from this index on have nothing to do with age: evict=demote lowers pages to them by
  // score. Level 0 of the rule is any stage before, level i is stage first_demotion + i - 1.
  int first_demotion = 0;
  // The stage, the last one, that no age brings but Cache::Rest does (idle=); -1: none.
  int rest_stage = -1;
  std::optional<PackRule> pack;
  std::optional<FoldRule> fold;
  // Of the rungs that need one; null where none does, or where it was not looked for.
  std::shared_ptr<const Codebook> codebook;

  bool operator==(const LayerTerms&) const = default;
};

inline const RungDescriptor* DescriptorOf(const RungDescriptor* rung) { return rung; }
inline const RungDescriptor* DescriptorOf(const Rung* rung) { return &rung->descriptor(); }

// RungT: RungDescriptor or Rung.
template <typename RungT>
struct LayerPlanOf : LayerTerms {
  // The rungs of a full page from an age on. Age = next position - end position of the page.
  struct Stage {
    const RungT* k = nullptr;
    const RungT* v = nullptr;
    int64_t from_age = 0;
    bool operator==(const Stage&) const = default;
  };

  const RungT* open_rung = nullptr;  // filling pages, and full ones younger than the first stage
  // Ascending in from_age, never empty: stage i holds while stages[i].from_age <= age and age <
  // stages[i + 1].from_age. The first from_age is open=N. Neighbours differ.
  std::vector<Stage> stages;

  static constexpr int64_t kNeverByAge = int64_t{1} << 60;

  bool operator==(const LayerPlanOf&) const = default;

  // Equal but for packing and the exact tokens; rungs are compared by descriptor, whatever their
  // codebooks, and folding by its segments and positions, whatever the networks.
  template <typename OtherT>
  bool GivesSameValues(const LayerPlanOf<OtherT>& other) const {
    const auto same_stage = [](const Stage& a, const typename LayerPlanOf<OtherT>::Stage& b) {
      return DescriptorOf(a.k) == DescriptorOf(b.k) && DescriptorOf(a.v) == DescriptorOf(b.v) &&
             a.from_age == b.from_age;
    };
    return DescriptorOf(open_rung) == DescriptorOf(other.open_rung) &&
           std::equal(stages.begin(), stages.end(), other.stages.begin(), other.stages.end(),
                      same_stage) &&
           window_tokens == other.window_tokens && sink_tokens == other.sink_tokens &&
           retention == other.retention && first_demotion == other.first_demotion &&
           rest_stage == other.rest_stage && fold.has_value() == other.fold.has_value() &&
           (!fold || (fold->image_tokens == other.fold->image_tokens &&
                      fold->restart_positions == other.fold->restart_positions));
  }

  // The stage of a full page of that age, or null while it stays open.
  const Stage* StageAt(int64_t age) const {
    const Stage* found = nullptr;
    for (const Stage& stage : stages) {
      if (stage.from_age <= age) found = &stage;
    }
    return found;
  }
};

using LayerForm = LayerPlanOf<RungDescriptor>;
using LayerPlan = LayerPlanOf<Rung>;

}  // namespace varve

#endif  // VARVE_PLAN_LAYER_PLAN_H_
