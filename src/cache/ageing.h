// Ageing: how pages sink. Decides from the plan and the positions alone when a page is sealed,
// demoted or dropped by the window, and carries it out.
//
// A page that several sequences share is encoded once: the first sequence to reach a stage makes
// the successor, the others adopt it.

#ifndef VARVE_CACHE_AGEING_H_
#define VARVE_CACHE_AGEING_H_

#include <cstdint>
#include <unordered_set>

#include "attention/stage_clock.h"
#include "pages/page.h"
#include "pages/page_store.h"
#include "plan/layer_plan.h"
#include "varve/executor.h"

namespace varve {

// Removes entries that match, releasing their pages and keeping live_rows right.
template <typename Match>
uint64_t DropEntries(PageStore& store, LayerTable& table, Match&& match) {
  uint64_t dropped = 0;
  std::erase_if(table.entries, [&](const TableEntry& entry) {
    if (!match(entry)) return false;
    table.live_rows -= entry.live.Count();
    store.Release(entry.page);
    ++dropped;
    return true;
  });
  return dropped;
}

class Ageing {
 public:
  struct Counters {
    uint64_t sealed = 0;
    uint64_t demoted = 0;
    uint64_t adopted = 0;
    uint64_t dropped = 0;
    uint64_t nonfinite_values = 0;
    uint64_t not_restored = 0;  // packed pages that could not be read to encode them anew
  };

  Ageing(const CacheShape& shape, PageStore* store, Executor* executor, StageTotals* stages)
      : shape_(shape), store_(store), executor_(executor), stages_(stages) {}

  // The next_position at which the first page of the table changes its stage or falls out of the
  // window.
  int64_t NextEvent(const LayerPlan& plan, const LayerTable& table) const;

  // Brings every page of the table to the state that is due at next_position and updates
  // table.next_event. If the system has no memory for a successor, the page stays as it is and
  // falls due again at the next step.
  void Apply(const LayerPlan& plan, LayerTable& table, int64_t next_position);

  // What pages that change their stage hold beyond what is held now, at most: new slots may need
  // MostSlotBytes, old ones give LeastSlotBytes back. Pages are encoded one at a time, the old one
  // freed after the new one: hence the transient part.
  struct Extra {
    uint64_t growth = 0;
    uint64_t transient = 0;
  };
  // One page that goes to `stage` and gives old_bytes back.
  void AddExtra(const LayerPlan::Stage& stage, uint64_t old_bytes, Extra* extra) const;
  // Everything that Apply would do at next_position. `seen` carries the pages that other sequences
  // of the same step have counted.
  void CountExtra(const LayerPlan& plan, const LayerTable& table, int64_t next_position,
                  std::unordered_set<const Page*>& seen, Extra* extra) const;

  // Sinks a page to a stage by score rather than by age; false if there is no memory for it.
  bool SinkTo(const LayerPlan& plan, int stage, TableEntry& entry);

  // Pages that a call outside of steps, or a policy, has dropped.
  void CountDropped(uint64_t pages) { counters_.dropped += pages; }

  const Counters& counters() const { return counters_; }

 private:
  bool Completed(const LayerTable& table, const TableEntry& entry) const;
  int DueStage(const LayerPlan& plan, const TableEntry& entry, int64_t next_position) const;
  bool OutOfWindow(const LayerPlan& plan, const TableEntry& entry, int64_t next_position) const;
  bool Sink(TableEntry& entry, const LayerPlan::Stage& stage);
  Page* Encode(const Page& from, const LayerPlan::Stage& stage);

  CacheShape shape_;
  PageStore* store_;
  Executor* executor_;
  StageTotals* stages_;
  Counters counters_;
};

}  // namespace varve

#endif  // VARVE_CACHE_AGEING_H_
