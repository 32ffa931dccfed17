// PageStore: makes and frees pages, brings their bytes in from files, keeps them packed or spilled,
// and keeps the accounts. Everything that allocates page memory goes through here.
//
// Owned by the cache; not thread-safe. It must outlive every PageRef. A call that throws (the heap
// is exhausted) has changed nothing, except that Read may have brought some of its pages in. Split
// over page_store.cc and, for packed pages, page_store_packed.cc.

#ifndef VARVE_PAGES_PAGE_STORE_H_
#define VARVE_PAGES_PAGE_STORE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pages/device_bytes.h"
#include "pages/packed_arena.h"
#include "pages/page.h"
#include "pages/page_pool.h"
#include "pages/spill_file.h"
#include "varve/cache.h"

namespace varve {

class PageStore {
 public:
  // `device` is not owned; null: the host addresses the memory of the pool.
  PageStore(const CacheShape& shape, PoolShare pool, DeviceBytes* device = nullptr)
      : shape_(shape),
        pool_(std::move(pool)),
        device_(device),
        arena_(pool_.memory(), pool_.outside_bytes()) {}

  StripShape ShapeOf(Part part, int layer, int head) const {
    return {layer, head, part == Part::kKey ? shape_.key_dim : shape_.value_dim,
            shape_.page_tokens};
  }
  size_t PageBytes(const Rung& key_rung, const Rung& value_rung) const;

  // A page without rows; its content is arbitrary.
  Result<PageRef> Make(int layer, int64_t first_position, PageState life, const Rung& key_rung,
                       const Rung& value_rung);
  // The same, whose bytes still are in a file; takes no page memory.
  PageRef MakeUnread(int layer, int64_t first_position, PageState life, const Rung& key_rung,
                     const Rung& value_rung, UnreadBytes unread);
  // Brings the bytes of unread pages into memory, packed ones packed; others are passed over. On
  // failure (no memory, bytes that fail their check) the pages at fault stay unread.
  Status Read(std::span<Page* const> pages, Executor* executor);
  uint64_t num_unread() const { return num_unread_; }
  // Changes kFilling, kFull and kSealed of a page into each other.
  void SetLife(Page* page, PageState life);
  // For a page whose content will change: nobody may adopt it, or its successor, any more.
  static void Detach(Page* page);
  // `to` has been encoded from `from`: whoever shares `from` may adopt it.
  static void SetSuccessor(Page* from, Page* to);
  // Copies all strips of `from` (same rungs) and its row count.
  Status CopyContent(const Page& from, Page* to);

  // --- packed pages ---

  // Replaces the raw bytes of a sealed page, which go back to the pool; or the packed ones of a
  // packed page. kOutOfMemory leaves the page as it was.
  Status Pack(Page* page, const PackedStrips& strips);
  // Memory for the raw strips of a packed page, to be filled and then set or given back.
  Result<PageSlot> TakeRaw(const Page& page);
  void GiveRaw(const Page& page, const PageSlot& slot);
  // The page has its raw strips beside the packed ones from now on; and no longer.
  void SetRaw(Page* page, const PageSlot& slot);
  void DropRaw(Page* page);
  void DropAllRaw();
  // Gives up the packed form of a page that has its raw strips: it is sealed as before.
  void Unpack(Page* page);
  // Packed pages that have their raw strips, too; and bytes that are taken for such.
  const std::unordered_set<Page*>& restored() const { return restored_; }
  uint64_t raw_bytes() const { return raw_bytes_; }
  // What the pages that are packed now would take in the pool, and what they take instead.
  uint64_t BytesSaved() const;

  // --- the spill file ---

  // Once, before any page is packed.
  void SetSpill(std::unique_ptr<SpillFile> spill);
  // Moves packed bytes to the spill file, those that were packed first, until at most keep_bytes
  // of them are in memory. A file that has no room leaves the rest where it is.
  void SpillDown(uint64_t keep_bytes);
  // A page in the spill file has been read; its bytes need not stay in memory.
  void ForgetSpilled(const Page& page) const;

  DeviceBytes* device() const { return device_; }
  PoolShare& pool() { return pool_; }
  const PoolShare& pool() const { return pool_; }
  // Fills the page parts of the statistics.
  // All but the tables.
  void AddTo(CacheReport* stats) const;
  // Of memory, the spill file apart.
  uint64_t bytes_held() const { return pool_.bytes_held() + arena_.bytes_held(); }
  uint64_t num_pages() const { return num_pages_; }

 private:
  friend class PageRef;

  struct Sum {
    uint64_t pages = 0;
    uint64_t bytes = 0;
  };
  using Rungs = std::pair<const Rung*, const Rung*>;
  using ByState = std::array<Sum, 4>;

  // From the pool; pages that are restored beside their packed form make room where it has none.
  Result<PageSlot> TakeSlot(size_t bytes);
  std::unique_ptr<Page> NewPage(int layer, int64_t first_position, PageState life,
                                const Rung& key_rung, const Rung& value_rung);
  void Free(Page* page);
  // Adds the page to the accounts, or takes it out. Cannot fail: NewPage has made its account.
  void Count(const Page& page, int sign);
  Status PlaceRead(Page* page, const PackedStrips& strips);
  // The payload of an unread page into its slot.
  Status ReadRaw(const UnreadBytes& unread, const Page& page, std::byte* slot) const;
  // Strips of a packed page in an arena's memory.
  static Result<std::shared_ptr<const PackedPage>> Place(
      PackedArena* arena, std::span<const std::byte> bytes, const std::vector<uint32_t>& ends,
      const std::shared_ptr<const PackDictionaries>& dictionaries, bool spilled);
  void ForgetPacked(const Page& page);
  Status Spill(Page* page);

  CacheShape shape_;
  PoolShare pool_;
  DeviceBytes* device_;
  PackedArena arena_;
  std::unique_ptr<SpillFile> spill_;          // null: none
  std::unique_ptr<PackedArena> spill_arena_;  // in it
  std::map<uint64_t, Page*> packed_;          // in memory, by packed_at
  uint64_t packed_bytes_ = 0;                 // of those
  uint64_t packed_slot_bytes_ = 0;            // that all packed pages would take raw
  uint64_t last_packed_at_ = 0;
  uint64_t num_spilled_ = 0;
  uint64_t bytes_spilled_ = 0;
  uint64_t spill_refused_ = 0;
  std::map<Rungs, ByState> accounts_;
  uint64_t num_pages_ = 0;
  uint64_t num_unread_ = 0;
  uint64_t bytes_unread_ = 0;
  uint64_t bytes_used_ = 0;
  uint64_t bytes_copied_ = 0;
  std::unordered_set<Page*> restored_;
  uint64_t raw_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_PAGES_PAGE_STORE_H_
