// What an open step knows: per sequence and layer what it has reserved, what has been appended, and
// in which forms its queries see the pages.

#ifndef VARVE_CACHE_STEP_STATE_H_
#define VARVE_CACHE_STEP_STATE_H_

#include <cstdint>
#include <vector>

#include "cache/ageing.h"
#include "cache/retention_driver.h"
#include "pages/sequence.h"
#include "varve/cache.h"

namespace varve {

// More would only cost memory: the products of a model gain nothing beyond.
inline constexpr int64_t kMaxStepTokens = 4096;

// What a step of some tokens will take in one layer of a sequence. Computed once, by the check of
// room; the work follows it.
struct LayerNeed {
  int room = 0;         // tokens that the last page takes
  bool copies = false;  // it is shared: a copy takes its place
  int new_pages = 0;
  uint64_t bytes = 0;  // of new open pages, copies and pages that must be read
  // Of forms that fall due: what they hold beyond what is held now, at most. Before the step's last
  // token the old form stays beside the new one; at its end pages are encoded one at a time, and
  // the old one goes after the new one has come: hence the transient part.
  uint64_t growth = 0;
  uint64_t transient = 0;
};

// From `from` on the step's queries see these pages, until the next one begins.
struct PageForms {
  int64_t from = 0;
  std::vector<TableEntry> pages;
};

// A layer of one sequence.
struct StepLayer {
  int appended = 0;
  // For a roll-back: the table's size, and the rows of its last page, which grows if `grows`.
  size_t size_before = 0;
  int rows_before = 0;
  bool grows = false;
  PageRef original;  // the shared page that a copy has replaced
  PageState life_before = PageState::kFilling;

  // Pages that fall due inside the step: who sees what, and the table as its last token sees it.
  // Made when the first query asks, or at the step's end. Empty while nothing falls due.
  bool aged = false;
  std::vector<PageForms> forms;
  Ageing::Counters counters;

  StepMass mass;  // where the layer's policy needs it
};

struct StepSequence {
  SequenceId id;
  Sequence* sequence = nullptr;
  int tokens = 0;
  std::vector<StepLayer> layers;
};

}  // namespace varve

#endif  // VARVE_CACHE_STEP_STATE_H_
