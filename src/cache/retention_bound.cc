#include "cache/retention_bound.h"

#include <algorithm>
#include <vector>

#include "base/align.h"
#include "retention/policy_table.h"

namespace varve {

namespace {

// Bytes of the page that begins at a position.
uint64_t FloorPageBytes(const LayerPlan& plan, const PageStore& store, int page_tokens,
                        int64_t tokens, int64_t begin) {
  const RetentionRule& rule = *plan.retention;
  const int64_t end = begin + page_tokens;
  const bool grows = end > tokens;
  const bool in_floor = grows || begin < rule.sink_tokens || end > tokens - rule.recent_tokens;
  if (!in_floor && rule.may_drop) return 0;
  const bool is_exact = grows || begin < plan.exact_tokens;
  const LayerPlan::Stage* stage = is_exact ? nullptr : plan.StageAt(tokens - end);
  if (stage == nullptr) return SlotBytes(store.PageBytes(*plan.open_rung, *plan.open_rung));
  if (rule.policy->uses_levels) return rule.levels.back().bytes;
  return SlotBytes(store.PageBytes(*stage->k, *stage->v));
}

// The pages where what a page takes may change, in order, from 0 to their number: a sequence may
// have more pages than anybody wants to count.
std::vector<int64_t> FloorSteps(const LayerPlan& plan, int page_tokens, int64_t tokens) {
  const RetentionRule& rule = *plan.retention;
  const int64_t num_pages = CeilDiv<int64_t>(tokens, page_tokens);
  std::vector<int64_t> steps = {0, num_pages, tokens / page_tokens,
                                CeilDiv<int64_t>(rule.sink_tokens, page_tokens),
                                CeilDiv<int64_t>(plan.exact_tokens, page_tokens)};
  steps.push_back(std::max<int64_t>(0, tokens - rule.recent_tokens) / page_tokens);
  for (const LayerPlan::Stage& stage : plan.stages) {
    steps.push_back(std::max<int64_t>(0, tokens - stage.from_age) / page_tokens);
  }
  for (int64_t& step : steps) step = std::min(step, num_pages);
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

uint64_t RetentionFloorBytes(const LayerPlan& plan, const PageStore& store, int page_tokens,
                             int64_t tokens) {
  const RetentionRule& rule = *plan.retention;
  const std::vector<int64_t> steps = FloorSteps(plan, page_tokens, tokens);
  uint64_t bytes = 0;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto count = static_cast<uint64_t>(steps[i + 1] - steps[i]);
    if (count == 0) continue;
    bytes += count * FloorPageBytes(plan, store, page_tokens, tokens, steps[i] * page_tokens);
  }
  const uint64_t open = SlotBytes(store.PageBytes(*plan.open_rung, *plan.open_rung));
  // The policy keeps room for pages that are begun before it decides again.
  const int64_t next = tokens + rule.every_tokens;
  const int64_t begun = (next - 1) / page_tokens - CeilDiv<int64_t>(tokens, page_tokens) + 1;
  return bytes + static_cast<uint64_t>(std::max<int64_t>(0, begun)) * open;
}

}  // namespace varve
