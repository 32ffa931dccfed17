#include "pages/page_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "base/run_parallel.h"

namespace varve {

namespace {

// A page that is being read.
struct ReadJob {
  Page* page = nullptr;
  PageSlot slot = {};        // of a raw page, until the page has it
  PackedStrips strips = {};  // of a packed one
  Status status = Status();
};

// Slots that no page has got go back to the pool, also where something throws.
struct ReadJobs {
  ReadJobs(PoolShare* slots, size_t most) : pool(slots) { list.reserve(most); }
  ~ReadJobs() {
    for (const ReadJob& job : list) {
      if (job.slot.data != nullptr) pool->GiveBack(job.slot);
    }
  }
  ReadJobs(const ReadJobs&) = delete;
  ReadJobs& operator=(const ReadJobs&) = delete;

  PoolShare* pool;
  std::vector<ReadJob> list;
};

}  // namespace

void PageRef::Free(Page* page) { page->store->Free(page); }

size_t PageStore::PageBytes(const Rung& key_rung, const Rung& value_rung) const {
  return static_cast<size_t>(shape_.num_kv_heads) *
         (key_rung.StripBytes(Part::kKey, ShapeOf(Part::kKey, 0, 0)) +
          value_rung.StripBytes(Part::kValue, ShapeOf(Part::kValue, 0, 0)));
}

std::unique_ptr<Page> PageStore::NewPage(int layer, int64_t first_position, PageState life,
                                         const Rung& key_rung, const Rung& value_rung) {
  auto page = std::make_unique<Page>();
  accounts_.try_emplace({&key_rung, &value_rung});
  page->store = this;
  page->layer = layer;
  page->life = life;
  page->first_position = first_position;
  const size_t key_bytes = key_rung.StripBytes(Part::kKey, ShapeOf(Part::kKey, 0, 0));
  page->parts[0] = {&key_rung, key_bytes, 0};
  page->parts[1] = {&value_rung, value_rung.StripBytes(Part::kValue, ShapeOf(Part::kValue, 0, 0)),
                    key_bytes};
  page->bytes = PageBytes(key_rung, value_rung);
  return page;
}

Result<PageRef> PageStore::Make(int layer, int64_t first_position, PageState life,
                                const Rung& key_rung, const Rung& value_rung) {
  std::unique_ptr<Page> page = NewPage(layer, first_position, life, key_rung, value_rung);
  VARVE_ASSIGN_OR_RETURN(const PageSlot slot, TakeSlot(page->bytes));
  page->where = RawBytes{slot};
  Count(*page, +1);
  return PageRef(page.release());
}

PageRef PageStore::MakeUnread(int layer, int64_t first_position, PageState life,
                              const Rung& key_rung, const Rung& value_rung, UnreadBytes unread) {
  std::unique_ptr<Page> page = NewPage(layer, first_position, life, key_rung, value_rung);
  page->where = std::move(unread);
  Count(*page, +1);
  return PageRef(page.release());
}

Result<PageSlot> PageStore::TakeSlot(size_t bytes) {
  Result<PageSlot> slot = pool_.Take(bytes);
  if (slot.ok() || restored_.empty()) return slot;
  DropAllRaw();
  return pool_.Take(bytes);
}

Status PageStore::Read(std::span<Page* const> pages, Executor* executor) {
  ReadJobs jobs(&pool_, pages.size());
  Status first_error;
  for (Page* page : pages) {
    if (page->unread() == nullptr) continue;
    PageSlot slot;
    if (!page->IsPacked()) {
      Result<PageSlot> taken = TakeSlot(page->bytes);
      if (!taken.ok()) {
        first_error = taken.status();
        break;
      }
      slot = *taken;
    }
    jobs.list.push_back({.page = page, .slot = slot});
  }
  const auto read = [&](size_t i, int) {
    ReadJob& job = jobs.list[i];
    const UnreadBytes& unread = *job.page->unread();
    job.status = job.page->IsPacked()
                     ? unread.source->ReadPacked(unread.index, *job.page, &job.strips)
                     : ReadRaw(unread, *job.page, job.slot.data);
  };
  if (device_ == nullptr) {
    RunParallel(*executor, jobs.list.size(), read);
  } else {
    for (size_t i = 0; i < jobs.list.size(); ++i) read(i, 0);
  }
  for (ReadJob& job : jobs.list) {
    // A page that was named twice has its bytes by now.
    const bool still_unread = job.page->unread() != nullptr;
    if (job.status.ok() && still_unread && job.page->IsPacked())
      job.status = PlaceRead(job.page, job.strips);
    if (job.status.ok() && still_unread && job.slot.data != nullptr) {
      Count(*job.page, -1);
      job.page->where = RawBytes{std::exchange(job.slot, PageSlot())};
      Count(*job.page, +1);
      continue;
    }
    if (first_error.ok()) first_error = std::move(job.status);
  }
  return first_error;
}

Status PageStore::ReadRaw(const UnreadBytes& unread, const Page& page, std::byte* slot) const {
  if (device_ == nullptr) return unread.source->Read(unread.index, page, slot);
  std::vector<std::byte> payload(page.bytes);
  VARVE_RETURN_IF_ERROR(unread.source->Read(unread.index, page, payload.data()));
  return device_->FromHost(payload.data(), payload.size(), slot);
}

Status PageStore::PlaceRead(Page* page, const PackedStrips& strips) {
  VARVE_RETURN_IF_ERROR(pool_.CheckRoom(PackedArena::MostBytes(strips.bytes.size())));
  return Pack(page, strips);
}

void PageStore::Free(Page* page) {
  Detach(page);
  Count(*page, -1);
  if (page->packed() != nullptr) {
    DropRaw(page);
    ForgetPacked(*page);
  } else if (const auto* raw = std::get_if<RawBytes>(&page->where)) {
    pool_.GiveBack(raw->slot);
  }
  delete page;
}

void PageStore::Detach(Page* page) {
  if (page->successor != nullptr) page->successor->predecessor = nullptr;
  if (page->predecessor != nullptr) page->predecessor->successor = nullptr;
  page->successor = nullptr;
  page->predecessor = nullptr;
}

void PageStore::SetSuccessor(Page* from, Page* to) {
  if (from->successor != nullptr) from->successor->predecessor = nullptr;
  from->successor = to;
  to->predecessor = from;
}

void PageStore::SetLife(Page* page, PageState life) {
  if (page->life == life) return;
  Count(*page, -1);
  page->life = life;
  Count(*page, +1);
}

Status PageStore::CopyContent(const Page& from, Page* to) {
  if (device_ != nullptr) {
    VARVE_RETURN_IF_ERROR(device_->Copy(from.raw(), from.bytes, to->raw()));
  } else {
    std::memcpy(to->raw(), from.raw(), from.bytes);
  }
  to->rows = from.rows;
  bytes_copied_ += from.bytes;
  return Status();
}

void PageStore::Count(const Page& page, int sign) {
  num_pages_ += sign;
  if (const UnreadBytes* unread = page.unread()) {
    num_unread_ += sign;
    bytes_unread_ +=
        sign * static_cast<int64_t>(page.IsPacked() ? unread->packed_bytes : page.bytes);
    return;
  }
  Sum& sum = accounts_.find({page.parts[0].rung, page.parts[1].rung})
                 ->second[static_cast<size_t>(page.state())];
  const PackedBytes* packed = page.packed();
  const auto bytes = static_cast<int64_t>(packed != nullptr ? packed->packed->bytes : page.bytes);
  sum.pages += sign;
  sum.bytes += sign * bytes;
  bytes_used_ += sign * bytes;
  if (packed == nullptr) return;
  packed_slot_bytes_ += sign * static_cast<int64_t>(SlotBytes(page.bytes));
  if (packed->packed->spilled) {
    num_spilled_ += sign;
    bytes_spilled_ += sign * bytes;
  } else {
    packed_bytes_ += sign * bytes;
  }
}

void PageStore::AddTo(CacheReport* stats) const {
  stats->bytes_used = bytes_used_;
  stats->bytes_held = bytes_held();
  stats->lossless.decode_cache_bytes = raw_bytes_;
  stats->lossless.pages_spilled = num_spilled_;
  stats->lossless.bytes_spilled = bytes_spilled_;
  stats->lossless.spill_refused = spill_refused_;
  stats->bytes_copied = bytes_copied_;
  stats->pages = num_pages_;
  stats->pages_unread = num_unread_;
  stats->bytes_unread = bytes_unread_;
  for (const auto& [rungs, by_state] : accounts_) {
    const auto& [key_rung, value_rung] = rungs;
    for (size_t state = 0; state < by_state.size(); ++state) {
      const Sum& sum = by_state[state];
      if (sum.pages == 0) continue;
      if (static_cast<PageState>(state) == PageState::kPacked) {
        stats->lossless.pages_now += sum.pages;
        stats->lossless.raw_bytes_now += sum.pages * PageBytes(*key_rung, *value_rung);
        stats->lossless.packed_bytes_now += sum.bytes;
      }
      std::string name(key_rung->name());
      if (key_rung != value_rung) name += "/" + std::string(value_rung->name());
      stats->rungs.push_back(
          {std::move(name), static_cast<PageState>(state), sum.pages, sum.bytes});
    }
  }
  // By name, so that the order does not depend on addresses.
  std::sort(stats->rungs.begin(), stats->rungs.end(), [](const RungBytes& a, const RungBytes& b) {
    return std::tie(a.rung, a.state) < std::tie(b.rung, b.state);
  });
}

}  // namespace varve
