// Sequence: one conversation of a cache: a page table per layer, and where it stands.

#ifndef VARVE_PAGES_SEQUENCE_H_
#define VARVE_PAGES_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pages/page_table.h"
#include "retention/retention.h"

namespace varve {

struct LayerTable : PageTable {
  using PageTable::PageTable;

  // What retention has decided and not yet carried out; drawn up for these entries, this position.
  struct Pending {
    RetentionDecision decision;
    int64_t next_position = 0;
    uint64_t edits = 0;
  };
  std::optional<Pending> pending;
  uint64_t decision_bytes = 0;  // of the decision in force

  // True if what is pending still is about these entries.
  bool PendingFits(int64_t next_position) const {
    return pending && pending->edits == edits() && pending->next_position == next_position &&
           pending->decision.levels.size() == size();
  }
};

// A prompt that fold_positions=restart has renumbered: positions [begin, end) stand for `lost`
// tokens more than they are. Which of the tokens a position stands for is not known any more.
struct PositionRestart {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t lost = 0;
};

struct Sequence {
  int64_t next_position = 0;
  bool prompt_ended = false;  // EndPrompt has been called
  // A prompt is being fed: what has been appended since prompt_begin is folded when it ends.
  bool prompt_open = true;
  int64_t prompt_begin = 0;
  std::vector<PositionRestart> restarts;  // ascending, disjoint
  std::vector<LayerTable> layers;

  int64_t tokens_restarted() const {
    int64_t lost = 0;
    for (const PositionRestart& restart : restarts) lost += restart.lost;
    return lost;
  }
  int64_t tokens_seen() const { return next_position + tokens_restarted(); }
};

using SequenceMap = std::unordered_map<uint64_t, std::unique_ptr<Sequence>>;

}  // namespace varve

#endif  // VARVE_PAGES_SEQUENCE_H_
