// PageTable: the pages of one sequence in one layer, ascending by position, and the rules that
// follow from positions alone: which page can still grow, and when a page falls due to be sealed,
// demoted or dropped by the window (PageSchedule).
//
// The table keeps its own accounts: live rows, the next event, and a count of edits that decisions
// made earlier did not know of. Copying a table shares its pages. Not thread-safe.

#ifndef VARVE_PAGES_PAGE_TABLE_H_
#define VARVE_PAGES_PAGE_TABLE_H_

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "pages/live_mask.h"
#include "pages/page.h"
#include "retention/page_score.h"

namespace varve {

struct TableEntry {
  PageRef page;
  int rows = 0;    // rows of the page that belong to this sequence: a prefix
  int stage = -1;  // index into the layer's stages, -1 while open
  int wish = -1;  // the stage that retention wants; a shared page is demoted when all holders agree
  LiveMask live;
  PageScore score;   // kept where the plan has a policy that looks at attention
  PageRef prepared;  // the page in its next stage, encoded ahead of time; or none

  int64_t EndPosition() const {
    return page->first_position + static_cast<int64_t>(rows) * page->tokens_per_row;
  }
  int64_t live_tokens() const { return int64_t{live.Count()} * page->tokens_per_row; }
};

// A page of a table that falls due: it goes to a stage, or out of the window.
struct PageEvent {
  int64_t position = 0;  // due from this next_position on
  size_t entry = 0;
  int stage = 0;
  bool drop = false;  // `stage` means nothing then
};

// What the plan of a layer says about ages.
struct PageSchedule {
  int page_tokens = 64;
  const Rung* open_rung = nullptr;  // of filling pages
  // When a page reaches each stage; kNever: no age does, a policy may. Ascending.
  std::vector<int64_t> from_age;
  int64_t exact_tokens = 0;   // pages that touch the first so many reach no stage by age
  int64_t window_tokens = 0;  // 0: none
  int64_t sink_tokens = 0;    // kept by the window

  static constexpr int64_t kNever = int64_t{1} << 60;

  // Of a page that cannot grow any more.
  struct Span {
    int64_t first_position = 0;
    int64_t end_position = 0;
    int stage = -1;
  };
  // Adds the events of a page after `from` up to and with `to`, each stage by itself. What was due
  // earlier (memory was short, or the page was not complete) falls due at from + 1.
  void AddEvents(const Span& page, size_t entry, int64_t from, int64_t to,
                 std::vector<PageEvent>* events) const;
  // The first event of a page, whenever that is or was; kNoEvent if there is none.
  int64_t FirstEvent(const Span& page) const;

  static constexpr int64_t kNoEvent = std::numeric_limits<int64_t>::max();

  bool IsExact(int64_t first_position) const { return first_position < exact_tokens; }

 private:
  bool InWindowForEver(const Span& page) const {
    return window_tokens <= 0 || page.first_position < sink_tokens;
  }
};

class PageTable {
 public:
  // `schedule` outlives the table. Null only for a table that is never asked about events.
  explicit PageTable(const PageSchedule* schedule = nullptr) : schedule_(schedule) {}

  const std::vector<TableEntry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  const TableEntry& back() const { return entries_.back(); }
  int64_t live_rows() const { return live_rows_; }
  // Counts changes that no decision of a policy has foreseen (truncate, remove, fold, …).
  uint64_t edits() const { return edits_; }

  // --- growth ---

  // Whether the last page is open and has room: every other page is complete. A sealed page that
  // was cut stays as it is, and a row for several tokens takes no single one.
  bool LastIsOpen() const;
  // Whether the token at next_position goes into the last page.
  bool CanGrow(int64_t next_position) const;
  // How many tokens it takes then; 0 if it takes none.
  int RoomAt(int64_t next_position) const;
  bool IsComplete(size_t index) const { return index + 1 < entries_.size() || !LastIsOpen(); }

  // Room for more entries, so that Add cannot fail.
  void Reserve(size_t more);
  void Add(TableEntry entry);
  // `count` rows have been written behind those of an entry.
  void AddRows(size_t index, int count);
  // Undoes AddRows and Add, as a step that is rolled back does: entries from `size` on go, the last
  // one that stays has `rows` rows.
  void RollBack(size_t size, int rows);

  // --- changes ---

  // The page takes another form: a copy, or the next stage.
  void Replace(size_t index, PageRef page);
  void Demote(size_t index, PageRef page, int stage);
  void SetPrepared(size_t index, PageRef page) { entries_[index].prepared = std::move(page); }
  // Drops entries that match; how many there were.
  template <typename Match>
  uint64_t DropIf(Match&& match) {
    const auto dropped = std::erase_if(entries_, [&](const TableEntry& entry) {
      if (!match(entry)) return false;
      live_rows_ -= entry.live.Count();
      return true;
    });
    if (dropped > 0) event_known_ = false;
    return dropped;
  }
  // Kills the rows of positions [begin, end); pages without a live row go. An edit.
  void Kill(int64_t begin, int64_t end);
  // Kills the rows from `position` on, which are no longer this sequence's either. An edit.
  void Truncate(int64_t position);
  // Other entries in place of all.
  void Assign(std::vector<TableEntry> entries);
  void CountEdit() { ++edits_; }

  PageScore& score(size_t index) { return entries_[index].score; }
  void SetWish(size_t index, int stage) { entries_[index].wish = stage; }

  // --- events ---

  // While held, nothing falls due: the prompt of this table has not ended, and folds when it does.
  bool held() const { return held_; }
  void SetHeld(bool held) {
    held_ = held;
    event_known_ = false;
  }
  // The next_position at which the schedule changes a page of this table; PageSchedule::kNoEvent if
  // it never will.
  int64_t NextEvent() const;
  // What falls due after `from` up to and with `to`, ascending by position; entries by index.
  std::vector<PageEvent> Events(int64_t from, int64_t to) const;
  const PageSchedule& schedule() const { return *schedule_; }

 private:
  PageSchedule::Span SpanOf(const TableEntry& entry) const {
    return {entry.page->first_position, entry.EndPosition(), entry.stage};
  }

  const PageSchedule* schedule_;
  std::vector<TableEntry> entries_;
  int64_t live_rows_ = 0;
  uint64_t edits_ = 0;
  bool held_ = false;
  mutable bool event_known_ = false;
  mutable int64_t next_event_ = PageSchedule::kNoEvent;
};

}  // namespace varve

#endif  // VARVE_PAGES_PAGE_TABLE_H_
