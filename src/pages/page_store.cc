#include "pages/page_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace varve {

size_t PageStore::PageBytes(const Rung& key_rung, const Rung& value_rung) const {
  return static_cast<size_t>(shape_.num_kv_heads) *
         (key_rung.StripBytes(KeyShape(0, 0)) + value_rung.StripBytes(ValueShape(0, 0)));
}

Page* PageStore::NewPage(int layer, int64_t first_position, PageState state, const Rung& key_rung,
                         const Rung& value_rung) const {
  auto* page = new Page;
  page->layer = layer;
  page->state = state;
  page->first_position = first_position;
  page->key_rung = &key_rung;
  page->value_rung = &value_rung;
  page->key_strip_bytes = key_rung.StripBytes(KeyShape(0, 0));
  page->value_strip_bytes = value_rung.StripBytes(ValueShape(0, 0));
  page->bytes = PageBytes(key_rung, value_rung);
  return page;
}

Result<Page*> PageStore::Make(int layer, int64_t first_position, PageState state,
                              const Rung& key_rung, const Rung& value_rung) {
  Result<PageSlot> slot = TakeSlot(PageBytes(key_rung, value_rung));
  if (!slot.ok()) return slot.status();
  Page* page = NewPage(layer, first_position, state, key_rung, value_rung);
  page->slot = *slot;
  Count(*page, +1);
  return page;
}

Page* PageStore::MakeUnread(int layer, int64_t first_position, PageState state,
                            const Rung& key_rung, const Rung& value_rung,
                            std::unique_ptr<UnreadPage> unread) {
  Page* page = NewPage(layer, first_position, state, key_rung, value_rung);
  page->unread = std::move(unread);
  Count(*page, +1);
  return page;
}

Result<PageSlot> PageStore::TakeSlot(size_t bytes) {
  Result<PageSlot> slot = pool_.Take(bytes);
  if (slot.ok() || restored_.empty()) return slot;
  DropAllRaw();
  return pool_.Take(bytes);
}

Status PageStore::Read(std::span<Page* const> pages, Executor* executor) {
  struct Job {
    Page* page;
    PageSlot slot;        // of a raw page
    PackedStrips strips;  // of a packed one
    Status status;
  };
  std::vector<Job> jobs;
  Status first_error;
  for (Page* page : pages) {
    if (page->unread == nullptr) continue;
    if (page->IsPacked()) {
      jobs.push_back({page, PageSlot(), {}, Status()});
      continue;
    }
    Result<PageSlot> slot = TakeSlot(page->bytes);
    if (!slot.ok()) {
      first_error = slot.status();
      break;
    }
    jobs.push_back({page, *slot, {}, Status()});
  }
  executor->ParallelFor(jobs.size(), [&jobs](size_t i, int) {
    Job& job = jobs[i];
    const UnreadPage& unread = *job.page->unread;
    job.status = job.page->IsPacked()
                     ? unread.source->ReadPacked(unread.index, *job.page, &job.strips)
                     : unread.source->Read(unread.index, *job.page, job.slot.data);
  });
  for (Job& job : jobs) {
    std::shared_ptr<const PackedPage> packed;
    if (job.status.ok() && job.page->unread != nullptr && job.page->IsPacked()) {
      job.status = pool_.CheckRoom(PackedArena::MostBytes(job.strips.bytes.size()));
      if (job.status.ok()) {
        Result<std::shared_ptr<const PackedPage>> placed =
            Place(&arena_, job.strips.bytes, job.strips.ends, job.strips.dictionaries, false);
        job.status = placed.status();
        if (placed.ok()) packed = std::move(*placed);
      }
    }
    // A page that was named twice has its bytes by now.
    if (!job.status.ok() || job.page->unread == nullptr) {
      if (job.slot.data != nullptr) pool_.GiveBack(job.slot);
      if (first_error.ok()) first_error = std::move(job.status);
      continue;
    }
    Count(*job.page, -1);
    job.page->slot = job.slot;
    job.page->packed = std::move(packed);
    if (job.page->packed) job.page->packed_at = ++last_packed_at_;
    job.page->unread.reset();
    Count(*job.page, +1);
  }
  return first_error;
}

void PageStore::Release(Page* page) {
  if (--page->refs > 0) return;
  Detach(page);
  Count(*page, -1);
  if (page->packed) {
    DropRaw(page);
  } else if (page->unread == nullptr) {
    pool_.GiveBack(page->slot);
  }
  delete page;
}

Result<std::shared_ptr<const PackedPage>> PageStore::Place(
    PackedArena* arena, std::span<const std::byte> bytes, const std::vector<uint32_t>& ends,
    const std::shared_ptr<const PackDictionaries>& dictionaries, bool spilled) {
  VARVE_ASSIGN_OR_RETURN(auto block, arena->Take(bytes.size()));
  std::memcpy(block, bytes.data(), bytes.size());
  auto packed = std::make_unique<PackedPage>();
  packed->data = block;
  packed->bytes = bytes.size();
  packed->spilled = spilled;
  packed->ends = ends;
  packed->dictionaries = dictionaries;
  return std::shared_ptr<const PackedPage>(packed.release(), [arena](const PackedPage* gone) {
    arena->GiveBack(gone->data, gone->bytes);
    delete gone;
  });
}

Status PageStore::Pack(Page* page, const PackedStrips& strips) {
  Result<std::shared_ptr<const PackedPage>> packed =
      Place(&arena_, strips.bytes, strips.ends, strips.dictionaries, false);
  if (!packed.ok()) return packed.status();
  Count(*page, -1);
  if (!page->packed) {
    pool_.GiveBack(page->slot);
    page->slot = PageSlot();
  }
  // A worker may still read the old packed bytes; it hands its share back to the cache's thread.
  page->packed = std::move(*packed);
  page->packed_at = ++last_packed_at_;
  page->state = PageState::kPacked;
  Count(*page, +1);
  return Status();
}

void PageStore::SetSpill(std::unique_ptr<SpillFile> spill) {
  spill_ = std::move(spill);
  spill_arena_ = std::make_unique<PackedArena>(spill_.get());
}

Status PageStore::Spill(Page* page) {
  const PackedPage& from = *page->packed;
  VARVE_ASSIGN_OR_RETURN(
      std::shared_ptr<const PackedPage> to,
      Place(spill_arena_.get(), {from.data, from.bytes}, from.ends, from.dictionaries, true));
  spill_->Forget(to->data, to->bytes);
  Count(*page, -1);
  page->packed = std::move(to);
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
  if (page.packed && page.packed->spilled) spill_->Forget(page.packed->data, page.packed->bytes);
}

Result<PageSlot> PageStore::TakeRaw(const Page& page) {
  Result<PageSlot> slot = pool_.Take(page.bytes);
  if (slot.ok()) raw_bytes_ += SlotBytes(page.bytes);
  return slot;
}

void PageStore::GiveRaw(const Page& page, const PageSlot& slot) {
  pool_.GiveBack(slot);
  raw_bytes_ -= SlotBytes(page.bytes);
}

void PageStore::SetRaw(Page* page, const PageSlot& slot) {
  page->slot = slot;
  restored_.insert(page);
}

void PageStore::DropRaw(Page* page) {
  if (!page->packed || !page->HasRaw()) return;
  restored_.erase(page);
  GiveRaw(*page, page->slot);
  page->slot = PageSlot();
}

void PageStore::DropAllRaw() {
  const std::vector<Page*> restored(restored_.begin(), restored_.end());
  for (Page* page : restored) DropRaw(page);
}

void PageStore::Unpack(Page* page) {
  Count(*page, -1);
  restored_.erase(page);
  raw_bytes_ -= SlotBytes(page->bytes);
  page->packed.reset();
  page->state = PageState::kSealed;
  page->pack_tried = false;
  Count(*page, +1);
}

void PageStore::Detach(Page* page) {
  if (page->successor != nullptr) page->successor->predecessor = nullptr;
  if (page->predecessor != nullptr) page->predecessor->successor = nullptr;
  page->successor = nullptr;
  page->predecessor = nullptr;
}

void PageStore::SetState(Page* page, PageState state) {
  if (page->state == state) return;
  Count(*page, -1);
  page->state = state;
  Count(*page, +1);
}

void PageStore::CopyContent(const Page& from, Page* to) {
  std::memcpy(to->slot.data, from.slot.data, from.bytes);
  to->rows = from.rows;
  bytes_copied_ += from.bytes;
}

void PageStore::Count(Page& page, int sign) {
  num_pages_ += sign;
  if (page.unread != nullptr) {
    num_unread_ += sign;
    bytes_unread_ +=
        sign * static_cast<int64_t>(page.IsPacked() ? page.unread->packed_bytes : page.bytes);
    return;
  }
  Sum& sum = accounts_[{page.key_rung, page.value_rung, page.state}];
  const auto bytes = static_cast<int64_t>(page.packed ? page.packed->bytes : page.bytes);
  sum.pages += sign;
  sum.bytes += sign * bytes;
  bytes_used_ += sign * bytes;
  if (!page.packed) return;
  if (page.packed->spilled) {
    num_spilled_ += sign;
    bytes_spilled_ += sign * bytes;
    return;
  }
  packed_bytes_ += sign * bytes;
  if (sign > 0) {
    packed_.emplace(page.packed_at, &page);
  } else {
    packed_.erase(page.packed_at);
  }
}

void PageStore::AddTo(CacheStats* stats) const {
  stats->bytes_used = bytes_used_;
  stats->bytes_held = pool_.bytes_held() + arena_.bytes_held();
  stats->lossless.decode_cache_bytes = raw_bytes_;
  stats->lossless.pages_spilled = num_spilled_;
  stats->lossless.bytes_spilled = bytes_spilled_;
  stats->lossless.spill_refused = spill_refused_;
  stats->bytes_copied = bytes_copied_;
  stats->pages = num_pages_;
  stats->pages_unread = num_unread_;
  stats->bytes_unread = bytes_unread_;
  stats->bytes_tables += num_pages_ * sizeof(Page);
  for (const auto& [account, sum] : accounts_) {
    if (sum.pages == 0) continue;
    const auto& [key_rung, value_rung, state] = account;
    if (state == PageState::kPacked) {
      stats->lossless.pages_now += sum.pages;
      stats->lossless.raw_bytes_now += sum.pages * PageBytes(*key_rung, *value_rung);
      stats->lossless.packed_bytes_now += sum.bytes;
    }
    std::string name(key_rung->name());
    if (key_rung != value_rung) name += "/" + std::string(value_rung->name());
    stats->rungs.push_back({std::move(name), state, sum.pages, sum.bytes});
  }
  // By name, so that the order does not depend on addresses.
  std::sort(stats->rungs.begin(), stats->rungs.end(), [](const RungBytes& a, const RungBytes& b) {
    return std::tie(a.rung, a.state) < std::tie(b.rung, b.state);
  });
}

}  // namespace varve
