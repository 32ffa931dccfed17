// Ageing: carries out what falls due by age. A page is sealed, demoted or dropped when the table's
// schedule says so (pages/page_table.h); here its next form is made. So is the form that no age
// brings, that of pages at rest (idle=).
//
// A page that several sequences share is encoded once: the first sequence to reach a stage makes
// the successor, the others adopt it. Encoding a page ahead of time (Prepare) changes nothing that
// a query sees. Owned by the cache; not thread-safe.

#ifndef VARVE_CACHE_AGEING_H_
#define VARVE_CACHE_AGEING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "pages/page_store.h"
#include "pages/page_table.h"
#include "plan/layer_plan.h"
#include "varve/executor.h"

namespace varve {

// What a layer's plan says about ages, for its page tables.
PageSchedule ScheduleOf(const LayerPlan& plan, int page_tokens);

class Ageing {
 public:
  struct Counters {
    uint64_t sealed = 0;
    uint64_t demoted = 0;
    uint64_t adopted = 0;
    uint64_t dropped = 0;
    uint64_t not_restored = 0;  // packed pages that could not be read to encode them anew
    Counters& operator+=(const Counters& other);
  };

  // encode_batch: pages that are encoded in one call of the back end; 1 where memory has a cap, so
  // that an old page goes before the next new one comes.
  Ageing(PageStore* store, Backend* backend, Executor* executor, size_t encode_batch)
      : store_(store), backend_(backend), executor_(executor), encode_batch_(encode_batch) {}

  // Brings every page of the table to the form that is due at next_position. Where there is no
  // memory for it a page stays as it is, falls due again at the next step, and this is false.
  bool Apply(const LayerPlan& plan, int64_t next_position, PageTable& table, Counters* counters);

  // Demotes one page by score rather than by age; false if there is no memory for it.
  bool Demote(const LayerPlan& plan, size_t index, int stage, PageTable& table);

  // Brings every page that lies in [begin, end) and cannot grow to the form of idle=, but for those
  // that stay exact. False, and the page stays as it is, where there is no memory or the page
  // cannot be read; true for a plan without idle=.
  bool Rest(const LayerPlan& plan, int64_t begin, int64_t end, PageTable& table,
            Counters* counters);

  // Encodes pages that fall due within the next kMaxAheadTokens tokens, or a page's, ahead of time,
  // where encoding is slow: without it one step in page_tokens would encode a page of every layer.
  // Layers take turns, so that a step encodes a few pages at most.
  void Prepare(const LayerPlan& plan, int layer, int num_layers, int64_t next_position,
               PageTable& table);
  static constexpr int64_t kMaxAheadTokens = 32;

  // Pages that a call outside of steps, or a policy, has dropped.
  void CountDropped(uint64_t pages) { counters_.dropped += pages; }
  void Count(const Counters& counters) { counters_ += counters; }
  const Counters& counters() const { return counters_; }

 private:
  // A page and the stage it goes to.
  struct Wanted {
    size_t index = 0;
    int stage = 0;
  };
  bool DemoteAll(const LayerPlan& plan, std::span<const Wanted> wanted, PageTable& table,
                 Counters* counters);
  // The form of a page that is there already: its own, a prepared or a successor page. Null if it
  // must be encoded.
  PageRef FindForm(const TableEntry& entry, const LayerPlan::Stage& stage, Counters* counters);
  // An empty page for the form of `page`; null without memory.
  PageRef MakeForm(Page* page, const LayerPlan::Stage& stage);

  PageStore* store_;
  Backend* backend_;
  Executor* executor_;
  size_t encode_batch_;
  Counters counters_;
};

}  // namespace varve

#endif  // VARVE_CACHE_AGEING_H_
