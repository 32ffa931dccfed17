// RetentionDriver: joins the policies (src/retention) with the tables of the cache.
//
//   Attend     the mass of every page goes into the step's StepMass (TapFor)
//   EndStep    Commit adds it to the scores; DecideWhereDue decides where that is due
//   BeginStep  ApplyDecisions carries out what the step before has decided, unless the table has
//              changed since: a stale decision is dropped
//
// Nothing of a step that is rolled back reaches a score. Owned by the cache; not thread-safe.

#ifndef VARVE_CACHE_RETENTION_DRIVER_H_
#define VARVE_CACHE_RETENTION_DRIVER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ageing.h"
#include "pages/page_store.h"
#include "pages/sequence.h"
#include "plan/layer_plan.h"
#include "varve/cache.h"

namespace varve {

// The mass of one step's queries on the pages of one layer, mean over heads.
struct StepMass {
  int64_t first_position = 0;  // of the step's first query
  std::vector<int64_t> pages;  // first positions, of every page that some query may see
  std::vector<float> mass;     // [tokens, pages]; negative: the query was not asked
};

// Of the layers with a policy, over sequences.
struct RetentionTotals {
  uint64_t f16_bytes = 0;  // of all tokens seen
  uint64_t held_bytes = 0;
  uint64_t plan_bytes = 0;
  uint64_t floor_bytes = 0;  // what the policies must keep
  int64_t seen = 0;          // tokens, summed over layers
  int64_t live = 0;
};

class RetentionDriver {
 public:
  RetentionDriver(const CacheShape& shape, const std::vector<LayerPlan>& plans,
                  const SequenceMap& sequences, PageStore* store, Ageing* ageing,
                  RetentionObserver* observer);

  // True if some layer has a policy.
  bool active() const { return num_layers_ > 0; }
  // Pages dropped and demoted so far.
  uint64_t pages_changed() const { return counts_.pages_evicted + counts_.pages_demoted; }
  // True once a decision has been carried out.
  bool has_acted() const { return counts_.plans > 0; }
  bool NeedsMass(int layer) const { return needs_mass_[static_cast<size_t>(layer)]; }

  // Tokens until the next decision, at most `most`.
  int64_t TokensToNextDecision(const Sequence& sequence, int64_t most) const;

  // Writes what attention has told into the step's mass. `table` is the layer's, with the pages
  // that the step has made and before any has left the window.
  static void Collect(const AttentionMass& told, const PageTable& table, int64_t step_position,
                      int step_tokens, StepMass* into);

  // After the step's tokens have been committed.
  void Commit(int layer, LayerTable& table, const StepMass& mass);
  // Decides for every layer where that is due at sequence.next_position.
  void DecideWhereDue(Sequence& sequence);
  // Decides for one layer, now: a function of the sequence alone.
  void Decide(Sequence& sequence, int layer);
  // The prompt is complete: policies that look at its end fix their scores and decide. Where there
  // is no memory for a decision it throws; all scores are fixed by then, and the next one is made
  // when it is due.
  void EndPrompt(Sequence& sequence);
  // Carries out what is pending.
  void ApplyDecisions(SequenceId id, Sequence& sequence);
  // Adds the present footprint to the sums of the run.
  void CountStep(const Sequence& sequence);

  void AddTo(const Sequence& sequence, RetentionTotals* totals) const;
  RetentionStats Stats(const RetentionTotals& totals) const;

 private:
  // What the layer's pages would hold if the sequence were alone: what it decides by, so that a
  // decision does not depend on other sequences.
  uint64_t LayerBytes(const LayerTable& table) const;
  // What they hold: less where pages are packed, which no decision may depend on.
  uint64_t HeldBytes(const LayerTable& table) const;
  // The lowest stage that no holder of the page objects to.
  int AgreedStage(int layer, const Page& page) const;
  uint64_t TargetBytes(const Sequence& sequence, int layer) const;
  // Pages of the layer that the next `tokens` tokens begin.
  uint64_t UpcomingBytes(const Sequence& sequence, int layer, int64_t tokens) const;
  std::vector<PageStat> StatsOf(int layer, int64_t next_position, const LayerTable& table) const;
  void ApplyDecision(SequenceId id, int layer, int64_t next_position, LayerTable& table);

  const CacheShape shape_;
  const std::vector<LayerPlan>& plans_;
  const SequenceMap& sequences_;
  PageStore* store_;
  Ageing* ageing_;
  RetentionObserver* observer_;
  uint64_t row_bytes_ = 0;  // of one token in one layer, f16
  int num_layers_ = 0;
  int budget_layers_ = 0;
  double target_ratio_ = 0;  // 0: a budget in bytes
  std::vector<bool> needs_mass_;

  RetentionStats counts_;  // the counting part
  struct LastDecision {
    double target_keep = 1, effective_keep = 1, kept_part = 1, floor_keep = 0;
    bool made = false;
  };
  std::vector<LastDecision> last_decisions_;
  double run_f16_bytes_ = 0;
  double run_held_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_CACHE_RETENTION_DRIVER_H_
