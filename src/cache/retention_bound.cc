#include "cache/retention_bound.h"

#include <algorithm>

#include "base/align.h"
#include "retention/policy_table.h"

namespace varve {

uint64_t RetentionFloorBytes(const LayerPlan& plan, const PageStore& store, int page_tokens,
                             int64_t tokens) {
  const RetentionRule& rule = *plan.retention;
  const uint64_t open = SlotBytes(store.PageBytes(*plan.open_rung, *plan.open_rung));
  uint64_t bytes = 0;
  for (int64_t begin = 0; begin < tokens; begin += page_tokens) {
    const int64_t end = begin + page_tokens;
    const bool grows = end > tokens;
    const bool in_floor = grows || begin < rule.sink_tokens || end > tokens - rule.recent_tokens;
    if (!in_floor && rule.may_drop) continue;
    const bool is_exact = grows || begin < plan.exact_tokens;
    const LayerPlan::Stage* stage = is_exact ? nullptr : plan.StageAt(tokens - end);
    if (stage == nullptr) {
      bytes += open;
    } else if (rule.policy->uses_levels) {
      bytes += rule.levels.back().bytes;
    } else {
      bytes += SlotBytes(store.PageBytes(*stage->k, *stage->v));
    }
  }
  // The policy keeps room for pages that are begun before it decides again.
  const int64_t next = tokens + rule.every_tokens;
  const int64_t begun = (next - 1) / page_tokens - CeilDiv<int64_t>(tokens, page_tokens) + 1;
  return bytes + static_cast<uint64_t>(std::max<int64_t>(0, begun)) * open;
}

}  // namespace varve
