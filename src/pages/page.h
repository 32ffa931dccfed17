// Page: a record for one layer and up to page_tokens consecutive tokens. Per KV head it has one
// strip of K rows and one of V rows: K and V of a head side by side, heads one after the other.
// PageRef is a counted reference to one.
//
// Tables of several sequences may refer to the same page. Only a page with one reference and in
// state kFilling is ever written to. PageStore makes pages; the last PageRef to go gives a page's
// memory back to the store, so no reference may outlive it. Reference counts belong to the thread
// that uses the cache.

#ifndef VARVE_PAGES_PAGE_H_
#define VARVE_PAGES_PAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "pages/packed_page.h"
#include "pages/page_pool.h"
#include "rungs/rung.h"
#include "varve/cache.h"

namespace varve {

struct Page;
class PageStore;

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

// --- where a page's bytes are: exactly one of these ---

struct RawBytes {
  PageSlot slot;
};

struct PackedBytes {
  std::shared_ptr<const PackedPage> packed;
  PageSlot restored;       // the strips as they were, for the decode cache; or none
  uint64_t last_read = 0;  // the step that last read it
  uint64_t packed_at = 0;  // ascending in the order in which pages were packed
};

// Still in a file: PageStore::Read brings them in.
struct UnreadBytes {
  std::shared_ptr<const PageSource> source;
  uint64_t index = 0;
  size_t packed_bytes = 0;  // of a packed page; 0: it is raw
};

// The K or the V half of a page.
struct PagePart {
  const Rung* rung = nullptr;
  size_t strip_bytes = 0;
  size_t offset = 0;  // of a head's strip behind the head's first byte
};

struct Page {
  uint32_t refs = 0;
  PageStore* store = nullptr;
  int layer = 0;
  PageState life = PageState::kFilling;  // kFilling, kFull or kSealed; see state()
  int rows = 0;                          // rows written
  int64_t first_position = 0;            // token of row 0
  int tokens_per_row = 1;                // more than one after folding
  std::array<PagePart, 2> parts;         // by Part
  size_t bytes = 0;                      // kv_heads * (strip bytes of K and V)
  std::variant<RawBytes, PackedBytes, UnreadBytes> where;
  bool pack_tried = false;  // a worker has it or had it
  // The page that an owner of this one has already encoded from it, and the way back. Neither
  // owns the other: whichever dies first clears the link.
  Page* successor = nullptr;
  Page* predecessor = nullptr;

  const PagePart& part(Part part) const { return parts[static_cast<size_t>(part)]; }
  const Rung& rung(Part which) const { return *part(which).rung; }
  bool HasRungs(const Rung* key, const Rung* value) const {
    return parts[0].rung == key && parts[1].rung == value;
  }

  const PackedBytes* packed() const { return std::get_if<PackedBytes>(&where); }
  PackedBytes* packed() { return std::get_if<PackedBytes>(&where); }
  const UnreadBytes* unread() const { return std::get_if<UnreadBytes>(&where); }
  // The raw strips in memory, also those of a packed page that has them restored; null if none.
  std::byte* raw() const {
    if (const auto* raw_bytes = std::get_if<RawBytes>(&where)) return raw_bytes->slot.data;
    return packed() != nullptr ? packed()->restored.data : nullptr;
  }
  bool HasRaw() const { return raw() != nullptr; }
  // Whether it is packed or will be, once it has been read.
  bool IsPacked() const {
    return packed() != nullptr || (unread() != nullptr && unread()->packed_bytes > 0);
  }
  PageState state() const { return IsPacked() ? PageState::kPacked : life; }
  bool IsSealed() const { return state() >= PageState::kSealed; }

  // What it holds for good: restored strips are the decode cache's.
  size_t HeldBytes() const {
    if (packed() != nullptr) return packed()->packed->bytes;
    return IsPacked() ? unread()->packed_bytes : SlotBytes(bytes);
  }
  // Requires HasRaw().
  std::byte* Strip(Part which, int head) const {
    const size_t head_bytes = parts[0].strip_bytes + parts[1].strip_bytes;
    return raw() + static_cast<size_t>(head) * head_bytes + part(which).offset;
  }
  // Position of the last token that row `row` stands for.
  int64_t RowPosition(int row) const {
    return first_position + static_cast<int64_t>(row + 1) * tokens_per_row - 1;
  }
};

inline constexpr Part kParts[] = {Part::kKey, Part::kValue};

class PageRef {
 public:
  PageRef() = default;
  explicit PageRef(Page* page) : page_(page) {
    if (page_ != nullptr) ++page_->refs;
  }
  PageRef(const PageRef& other) : PageRef(other.page_) {}
  PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~PageRef() {
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): it thinks that optional does this twice
    if (page_ != nullptr && --page_->refs == 0) Free(page_);
  }

  Page* get() const { return page_; }
  Page* operator->() const { return page_; }
  Page& operator*() const { return *page_; }
  explicit operator bool() const { return page_ != nullptr; }
  bool operator==(const PageRef&) const = default;

 private:
  static void Free(Page* page);  // page_store.cc

  Page* page_ = nullptr;
};

}  // namespace varve

#endif  // VARVE_PAGES_PAGE_H_
