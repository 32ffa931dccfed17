// PageStore, packed pages: in the arena, restored beside it, or in the spill file.

#include <cstring>
#include <utility>

#include "base/slot_bytes.h"
#include "pages/page_store.h"

namespace varve {

Result<std::shared_ptr<const PackedPage>> PageStore::Place(
    PackedArena* arena, std::span<const std::byte> bytes, const std::vector<uint32_t>& ends,
    const std::shared_ptr<const PackDictionaries>& dictionaries, bool spilled) {
  auto packed = std::make_unique<PackedPage>();
  packed->bytes = bytes.size();
  packed->spilled = spilled;
  packed->ends = ends;
  packed->dictionaries = dictionaries;
  VARVE_ASSIGN_OR_RETURN(packed->data, arena->Take(bytes.size()));
  std::memcpy(packed->data, bytes.data(), bytes.size());
  return std::shared_ptr<const PackedPage>(packed.release(), [arena](const PackedPage* gone) {
    arena->GiveBack(gone->data, gone->bytes);
    delete gone;
  });
}

Status PageStore::Pack(Page* page, const PackedStrips& strips) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const PackedPage> placed,
                         Place(&arena_, strips.bytes, strips.ends, strips.dictionaries, false));
  packed_.emplace(last_packed_at_ + 1, page);
  // Nothing fails from here on.
  Count(*page, -1);
  if (PackedBytes* packed = page->packed()) {
    // A worker may still read the old packed bytes; it hands its share back to the cache's thread.
    ForgetPacked(*page);
    packed->packed = std::move(placed);
    packed->packed_at = ++last_packed_at_;
  } else {
    if (const auto* raw = std::get_if<RawBytes>(&page->where)) pool_.GiveBack(raw->slot);
    page->where = PackedBytes{std::move(placed), PageSlot(), 0, ++last_packed_at_};
  }
  page->life = PageState::kSealed;
  Count(*page, +1);
  return Status();
}

void PageStore::ForgetPacked(const Page& page) {
  if (!page.packed()->packed->spilled) packed_.erase(page.packed()->packed_at);
}

uint64_t PageStore::BytesSaved() const {
  const uint64_t held = arena_.bytes_held();
  return packed_slot_bytes_ > held ? packed_slot_bytes_ - held : 0;
}

Result<PageSlot> PageStore::TakeRaw(const Page& page) {
  VARVE_ASSIGN_OR_RETURN(const PageSlot slot, pool_.Take(page.bytes));
  raw_bytes_ += SlotBytes(page.bytes);
  return slot;
}

void PageStore::GiveRaw(const Page& page, const PageSlot& slot) {
  pool_.GiveBack(slot);
  raw_bytes_ -= SlotBytes(page.bytes);
}

void PageStore::SetRaw(Page* page, const PageSlot& slot) {
  try {
    restored_.insert(page);
  } catch (...) {
    GiveRaw(*page, slot);
    throw;
  }
  page->packed()->restored = slot;
}

void PageStore::DropRaw(Page* page) {
  PackedBytes* packed = page->packed();
  if (packed == nullptr || packed->restored.data == nullptr) return;
  restored_.erase(page);
  GiveRaw(*page, packed->restored);
  packed->restored = PageSlot();
}

void PageStore::DropAllRaw() {
  while (!restored_.empty()) DropRaw(*restored_.begin());
}

void PageStore::Unpack(Page* page) {
  Count(*page, -1);
  restored_.erase(page);
  raw_bytes_ -= SlotBytes(page->bytes);
  ForgetPacked(*page);
  page->where = RawBytes{page->packed()->restored};
  page->pack_tried = false;
  Count(*page, +1);
}

void PageStore::SetSpill(std::unique_ptr<SpillFile> spill) {
  spill_ = std::move(spill);
  spill_arena_ = std::make_unique<PackedArena>(spill_.get(), nullptr, kSystemPageBytes);
}

Status PageStore::Spill(Page* page) {
  const PackedPage& from = *page->packed()->packed;
  VARVE_ASSIGN_OR_RETURN(
      std::shared_ptr<const PackedPage> to,
      Place(spill_arena_.get(), {from.data, from.bytes}, from.ends, from.dictionaries, true));
  spill_->Forget(to->data, to->bytes);
  Count(*page, -1);
  ForgetPacked(*page);
  page->packed()->packed = std::move(to);
  Count(*page, +1);
  return Status();
}

void PageStore::SpillDown(uint64_t keep_bytes) {
  if (spill_ == nullptr) return;
  while (packed_bytes_ > keep_bytes) {
    if (Spill(packed_.begin()->second).ok()) continue;
    ++spill_refused_;
    return;
  }
}

void PageStore::ForgetSpilled(const Page& page) const {
  const PackedBytes* packed = page.packed();
  if (packed != nullptr && packed->packed->spilled)
    spill_->Forget(packed->packed->data, packed->packed->bytes);
}

}  // namespace varve
