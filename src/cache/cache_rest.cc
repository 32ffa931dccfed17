// Rest: pages of a sequence that nobody needs soon, in the form of idle=.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cache/cache_impl.h"

namespace varve {

Result<int64_t> CacheImpl::Rest(SequenceId id, int64_t begin, int64_t end) {
  VARVE_ASSIGN_OR_RETURN(Sequence * sequence, FindIdle(id, "Rest"));
  if (begin < 0 || begin > end || end > sequence->next_position) {
    return InvalidArgument(
        fmt::format("Rest: [{}, {}) is not inside [0, {})", begin, end, sequence->next_position));
  }
  const auto rests = [](const LayerPlan& plan) { return plan.rest_stage >= 0; };
  if (std::none_of(layer_plans_.begin(), layer_plans_.end(), rests)) {
    return FailedPrecondition(fmt::format("Rest: plan \"{}\" has no idle=; add idle=RUNG to it",
                                          PrintPlan(settled_plan_)));
  }
  Ageing::Counters counters;
  bool all = true;
  Status read;
  for (size_t layer = 0; layer < layer_plans_.size() && read.ok(); ++layer) {
    LayerTable& table = sequence->layers[layer];
    std::vector<Page*> unread;
    for (const TableEntry& entry : table.entries()) {
      const bool is_inside = entry.page->first_position >= begin && entry.EndPosition() <= end;
      if (is_inside && rests(layer_plans_[layer])) unread.push_back(entry.page.get());
    }
    read = store_.Read(unread, executor_);
    if (read.ok()) all = ageing_.Rest(layer_plans_[layer], begin, end, table, &counters) && all;
  }
  ageing_.Count(counters);
  // What resting saves is saved at once.
  if (counters.sealed + counters.demoted > 0) store_.pool().DropWarm();
  if (packing_.active()) packing_.AdvanceAtRest(*sequence);
  if (!read.ok()) return read;
  const uint64_t changed = counters.sealed + counters.demoted + counters.adopted;
  if (all) return static_cast<int64_t>(changed);
  if (counters.not_restored > 0) return DataLoss("Rest: a packed page could not be unpacked");
  return OutOfMemory("Rest: no memory for the form of idle=; what is at rest stays so");
}

}  // namespace varve
