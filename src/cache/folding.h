// Folding: the learned compressor on the pages of a prompt (fold=).
//
// When a sequence's prompt ends, every layer with a compressor is folded: groups of tokens become
// rows of new pages, in the open rung; what does not fill a group is copied. All layers are folded
// before any table changes: if one fails, nothing has happened but work. From then on folded pages
// are pages like any other: ageing seals them, policies drop them, packing packs them.
//
// Until then nothing of such a layer is sealed or dropped (PageTable::held): the networks were
// trained on exact rows, and a policy would leave holes.
//
// A later prompt begins at Sequence::prompt_begin. Pages that end before it stay. The page that it
// shares with its first tokens is made anew, with the older tokens as they are.
//
// Owned by the cache; not thread-safe, parallel inside. Results do not depend on the number of
// threads.

#ifndef VARVE_CACHE_FOLDING_H_
#define VARVE_CACHE_FOLDING_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "fold/fold_pieces.h"
#include "kernels/kernels.h"
#include "pages/page_store.h"
#include "pages/sequence.h"
#include "plan/layer_plan.h"
#include "varve/cache.h"
#include "varve/executor.h"

namespace varve {

class Folding {
 public:
  Folding(const CacheShape& shape, const std::vector<LayerPlan>& plans, const Kernels& kernels,
          PageStore* store, Executor* executor);

  // True if some layer folds.
  bool active() const { return stats_.layers > 0; }
  // Says of every layer whether it waits for the end of the sequence's prompt.
  void Begin(Sequence& sequence) const;
  // No layer waits any more; nothing is folded.
  void Skip(Sequence& sequence);

  // Folds every layer that waits. Memory for the new pages comes on top of the old ones', which go
  // when all is done. On failure the message names the layer, and nothing has changed.
  Status Fold(Sequence& sequence);

  const FoldStats& stats() const { return stats_; }
  // Values of folded rows that the open rung could not hold.
  uint64_t nonfinite_values() const { return nonfinite_values_; }

 private:
  // What a table becomes.
  struct FreshTable;

  Status FoldLayer(int layer, const Sequence& sequence, FreshTable* fresh);
  Status MakePages(int layer, int64_t next_position, const std::vector<FoldPiece>& pieces,
                   FreshTable* fresh);
  Status ComputeRows(int layer, const LayerTable& table, const FreshTable& fresh);
  static Status Restart(int64_t prompt_begin, std::vector<FreshTable>& fresh);
  void Install(int64_t prompt_begin, LayerTable& table, FreshTable& fresh);

  const CacheShape shape_;
  const std::vector<LayerPlan>& plans_;
  const Kernels& kernels_;
  PageStore* store_;
  Executor* executor_;
  FoldStats stats_;
  std::atomic<uint64_t> nonfinite_values_ = 0;
};

}  // namespace varve

#endif  // VARVE_CACHE_FOLDING_H_
