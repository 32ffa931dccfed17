// Page, and the table of pages that a sequence keeps per layer.
//
// A page is a record for one layer and up to page_tokens consecutive tokens: per KV head one strip
// of K rows and one of V rows, K and V of a head side by side, heads one after the other. Pages are
// reference-counted; tables of several sequences may point at the same page. Only a page with one
// reference and in state kFilling is ever written to.

#ifndef VARVE_PAGES_PAGE_H_
#define VARVE_PAGES_PAGE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pages/packed_page.h"
#include "pages/page_pool.h"
#include "retention/page_score.h"
#include "retention/retention.h"
#include "rungs/rung.h"
#include "varve/cache.h"

namespace varve {

struct Page;

// Where a page's bytes are while they are not in memory.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Copies the payload of its page `index` to `to` (page.bytes bytes) and checks it. The message
  // names the source, layer and positions. Thread-safe.
  virtual Status Read(uint64_t index, const Page& page, std::byte* to) const = 0;
  // The same of a page that it holds packed, as it is.
  virtual Status ReadPacked(uint64_t index, const Page& page, PackedStrips* to) const = 0;
};

struct UnreadPage {
  std::shared_ptr<const PageSource> source;
  uint64_t index = 0;
  size_t packed_bytes = 0;  // of a packed page; 0: it is raw
};

struct Page {
  uint32_t refs = 1;
  int layer = 0;
  PageState state = PageState::kFilling;
  int rows = 0;                // rows written
  int64_t first_position = 0;  // token of row 0
  int tokens_per_row = 1;      // more than one after folding
  const Rung* key_rung = nullptr;
  const Rung* value_rung = nullptr;
  size_t key_strip_bytes = 0;
  size_t value_strip_bytes = 0;
  size_t bytes = 0;  // kv_heads * (key_strip_bytes + value_strip_bytes)
  PageSlot slot;     // none while unread; of a packed page: the restored strips, or none
  // The strips, packed: set in state kPacked, unless unread.
  std::shared_ptr<const PackedPage> packed;
  bool pack_tried = false;  // a worker has it or had it
  uint64_t last_read = 0;   // the step that last read it packed
  uint64_t packed_at = 0;   // ascending in the order in which pages were packed
  // Set while the bytes still are in a file: PageStore::Read brings them in.
  std::unique_ptr<UnreadPage> unread;
  // The page that an owner of this one has already encoded from it, and the way back. Neither
  // owns the other: whichever dies first clears the link.
  Page* successor = nullptr;
  Page* predecessor = nullptr;

  bool HasRaw() const { return slot.data != nullptr; }
  // Whether it is packed or will be, once it has been read.
  bool IsPacked() const { return state == PageState::kPacked; }
  // What it holds for good: restored strips are the decode cache's.
  size_t HeldBytes() const {
    if (packed) return packed->bytes;
    return unread != nullptr && IsPacked() ? unread->packed_bytes : SlotBytes(bytes);
  }
  // Requires HasRaw(): neither unread nor packed.
  std::byte* KeyStrip(int head) const {
    return slot.data + static_cast<size_t>(head) * (key_strip_bytes + value_strip_bytes);
  }
  std::byte* ValueStrip(int head) const { return KeyStrip(head) + key_strip_bytes; }
  // Position of the last token that row `row` stands for.
  int64_t RowPosition(int row) const {
    return first_position + static_cast<int64_t>(row + 1) * tokens_per_row - 1;
  }
};

// Which rows of a page a sequence still sees; one bit per row.
class LiveMask {
 public:
  using Words = std::array<uint64_t, 2>;
  LiveMask() = default;
  explicit LiveMask(const Words& words) : words_(words) {}
  const Words& words() const { return words_; }

  bool Get(int row) const { return (words_[row / 64] >> (row % 64)) & 1; }
  // Bits [begin, end), one way or the other.
  void Fill(int begin, int end, bool live) {
    for (int row = begin; row < end; ++row) {
      const uint64_t bit = uint64_t{1} << (row % 64);
      words_[row / 64] = live ? words_[row / 64] | bit : words_[row / 64] & ~bit;
    }
  }
  int Count() const { return std::popcount(words_[0]) + std::popcount(words_[1]); }
  // True if exactly the rows [0, rows) live. Asked once per page and head: no counting of bits.
  bool IsPrefix(int rows) const { return words_[0] == Ones(rows) && words_[1] == Ones(rows - 64); }

 private:
  // The lowest `count` bits; none if negative, all from 64 on.
  static uint64_t Ones(int count) {
    if (count <= 0) return 0;
    return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }

  Words words_ = {0, 0};
};

struct TableEntry {
  Page* page = nullptr;
  int rows = 0;    // rows of the page that belong to this sequence: a prefix
  int stage = -1;  // index into LayerPlan::stages, -1 while open
  int wish = -1;   // the stage that retention wants; a shared page sinks when all holders agree
  LiveMask live;
  PageScore score;  // kept where the plan has a policy that looks at attention

  int64_t EndPosition() const {
    return page->first_position + static_cast<int64_t>(rows) * page->tokens_per_row;
  }
  int64_t live_tokens() const { return int64_t{live.Count()} * page->tokens_per_row; }
  // Whether rows could follow in this page, if it is the last one.
  bool HasRoom(int page_tokens) const { return rows < page_tokens && page->tokens_per_row == 1; }
};

struct LayerTable {
  std::vector<TableEntry> entries;  // ascending positions
  int64_t live_rows = 0;
  // The next_position at which the plan changes a page of this table; kNoEvent if it never will.
  int64_t next_event = kNoEvent;

  // Counts changes that retention has not planned for (truncate, remove, …).
  uint64_t edits = 0;
  // What retention has decided and not yet carried out; drawn up for these entries, this position.
  struct Pending {
    RetentionDecision decision;
    int64_t next_position = 0;
    uint64_t edits = 0;
  };
  std::optional<Pending> pending;
  uint64_t plan_bytes = 0;  // of the decision in force

  // The plan folds this table's prompt, which has not ended: until then nothing of the table is
  // sealed, demoted or dropped by the plan.
  bool unfolded = false;

  // True if what is pending still is about these entries.
  bool PendingFits(int64_t next_position) const {
    return pending && pending->edits == edits && pending->next_position == next_position &&
           pending->decision.levels.size() == entries.size();
  }

  static constexpr int64_t kNoEvent = std::numeric_limits<int64_t>::max();
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

#endif  // VARVE_PAGES_PAGE_H_
