#include "pages/page_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <string>

#include "base/align.h"

namespace varve {

struct PageSlab {
  // System pages [begin, end) of the slab.
  struct Pages {
    size_t begin = 0;
    size_t end = 0;
    size_t bytes() const { return (end - begin) * kSystemPageBytes; }
  };
  // How many slots there are in a system page, at most 16 of each kind.
  struct PageUse {
    uint8_t used = 0;
    uint8_t warm = 0;
    bool resident() const { return used > 0 || warm > 0; }
  };

  PagePool::SizeClass* size_class = nullptr;
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint32_t used = 0;
  std::vector<PageUse> pages;  // by system page
  // Free slots: those of `warm` are resident, those of `cold` are not, but for system pages that
  // they share. A slab without a used slot has a warm one: it is the last one given back.
  std::vector<uint32_t> warm;
  std::vector<uint64_t> cold;  // a bit per slot
  size_t num_cold = 0;
  size_t first_cold_word = 0;  // no bit is set before it
  // In a doubly linked list, once per kind of list.
  struct Links {
    PageSlab* previous = nullptr;
    PageSlab* next = nullptr;
  };
  Links partial_links;
  Links warm_links;

  bool has_free() const { return !warm.empty() || num_cold > 0; }
  std::byte* slot(uint32_t index) const { return base + index * size_class->slot_bytes; }
  Pages PagesOf(uint32_t index) const {
    const size_t begin = index * size_class->slot_bytes;
    return {begin / kSystemPageBytes, CeilDiv(begin + size_class->slot_bytes, kSystemPageBytes)};
  }

  void AddCold(uint32_t index) {
    cold[index / 64] |= uint64_t{1} << (index % 64);
    first_cold_word = std::min<size_t>(first_cold_word, index / 64);
    ++num_cold;
  }
  // The one with the lowest address; there must be one.
  uint32_t FirstCold() {
    while (cold[first_cold_word] == 0) ++first_cold_word;
    return static_cast<uint32_t>(first_cold_word * 64) +
           static_cast<uint32_t>(std::countr_zero(cold[first_cold_word]));
  }
  void RemoveCold(uint32_t index) {
    cold[index / 64] &= ~(uint64_t{1} << (index % 64));
    --num_cold;
  }
};

namespace {

using SlabLinks = PageSlab::Links PageSlab::*;

void Link(PageSlab** head, PageSlab* slab, SlabLinks links) {
  (slab->*links).previous = nullptr;
  (slab->*links).next = *head;
  if (*head != nullptr) ((*head)->*links).previous = slab;
  *head = slab;
}

void Unlink(PageSlab** head, PageSlab* slab, SlabLinks links) {
  const auto [previous, next] = slab->*links;
  if (previous != nullptr) (previous->*links).next = next;
  if (next != nullptr) (next->*links).previous = previous;
  if (*head == slab) *head = next;
}

size_t SlabBytes(size_t slot_bytes, size_t slots) {
  return AlignUp(slot_bytes * slots, kSlabGranule);
}

// The smallest slab in which next to nothing is left over behind the last slot (a huge page would
// make that resident, too), or else the one with the smallest share left over.
uint32_t SlotsPerSlab(size_t slot_bytes) {
  constexpr size_t kMaxGranules = 16;
  size_t best_slots = 1;
  double best_share = 1.0;
  for (size_t granules = 1; granules <= kMaxGranules; ++granules) {
    const size_t slots = granules * kSlabGranule / slot_bytes;
    if (slots == 0) continue;
    const size_t bytes = SlabBytes(slot_bytes, slots);
    const double share =
        static_cast<double>(bytes - slots * slot_bytes) / static_cast<double>(bytes);
    if (share < best_share) {
      best_slots = slots;
      best_share = share;
    }
    if (best_share <= 1.0 / 64) break;
  }
  return static_cast<uint32_t>(best_slots);
}

}  // namespace

PagePool::PagePool(PageMemory* memory, uint64_t max_bytes)
    : memory_(memory), max_bytes_(max_bytes) {}

PagePool::~PagePool() {
  assert(used_bytes_ == 0 && "slots outlive their pool");
  for (auto& [bytes, size_class] : classes_) {
    while (size_class->partial != nullptr) RemoveSlab(size_class->partial);
  }
}

// Enough for the open pages that one step frees and the next takes; small beside a real cache.
uint64_t PagePool::WarmLimit() const { return (uint64_t{128} << 10) + used_bytes_ / 64; }

PagePool::SizeClass& PagePool::ClassOf(size_t slot_bytes) {
  const auto found = classes_.find(slot_bytes);
  if (found != classes_.end()) return *found->second;
  // Whole before it is entered: an allocation may fail on the way.
  auto size_class = std::make_unique<SizeClass>();
  size_class->slot_bytes = slot_bytes;
  size_class->slots_per_slab = SlotsPerSlab(slot_bytes);
  return *classes_.emplace(slot_bytes, std::move(size_class)).first->second;
}

Status PagePool::AddSlab(SizeClass& size_class) {
  const size_t bytes = SlabBytes(size_class.slot_bytes, size_class.slots_per_slab);
  // Everything that may throw comes before the mapping, which nobody would unmap.
  auto slab = std::make_unique<PageSlab>();
  slab->size_class = &size_class;
  slab->bytes = bytes;
  slab->pages.resize(bytes / kSystemPageBytes);
  slab->cold.resize(CeilDiv(size_class.slots_per_slab, 64));
  for (uint32_t i = 0; i < size_class.slots_per_slab; ++i) slab->AddCold(i);
  slab->warm.reserve(size_class.slots_per_slab);
  slab->base = memory_->Map(bytes);
  if (slab->base == nullptr) {
    return OutOfMemory("page pool: the system refused a slab of " + std::to_string(bytes) +
                       " bytes; bytes_held " + std::to_string(Held()));
  }
  Link(&size_class.partial, slab.release(), &PageSlab::partial_links);
  ++num_slabs_;
  return Status();
}

void PagePool::RemoveSlab(PageSlab* slab) {
  while (!slab->warm.empty()) RemoveWarm(slab);
  Unlink(&slab->size_class->partial, slab, &PageSlab::partial_links);
  memory_->Unmap(slab->base, slab->bytes);
  --num_slabs_;
  delete slab;
}

bool PagePool::Fits(uint64_t bytes) const {
  return max_bytes_ == 0 || outside_bytes_ + Held() + bytes <= max_bytes_;
}

Status PagePool::Refusal(uint64_t bytes) const {
  return OutOfMemory("page pool: " + std::to_string(bytes) + " bytes wanted, bytes_held " +
                     std::to_string(outside_bytes_ + Held()) + ", max_bytes " +
                     std::to_string(max_bytes_));
}

Status PagePool::CheckRoom(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  while (warm_ != nullptr && !Fits(bytes)) TrimWarm();
  return Fits(bytes) ? Status() : Refusal(bytes);
}

uint64_t PagePool::NextCost(const SizeClass& size_class) {
  PageSlab* slab = size_class.partial;
  if (slab == nullptr) {
    return AlignUp(size_class.slot_bytes, kSystemPageBytes);
  }
  if (!slab->warm.empty()) return 0;
  const PageSlab::Pages pages = slab->PagesOf(slab->FirstCold());
  uint64_t bytes = 0;
  for (size_t page = pages.begin; page < pages.end; ++page) {
    if (!slab->pages[page].resident()) bytes += kSystemPageBytes;
  }
  return bytes;
}

Result<PageSlot> PagePool::Take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  SizeClass& size_class = ClassOf(SlotBytes(bytes));
  // A trimmed slot may have shared a system page with this one, which then costs more.
  for (uint64_t cost = NextCost(size_class); cost > 0 && !Fits(cost); cost = NextCost(size_class)) {
    if (warm_ == nullptr) return Refusal(cost);
    TrimWarm();
  }
  if (size_class.partial == nullptr) VARVE_RETURN_IF_ERROR(AddSlab(size_class));
  PageSlab* slab = size_class.partial;
  uint32_t index;
  if (slab->warm.empty()) {
    index = slab->FirstCold();
    slab->RemoveCold(index);
  } else {
    index = RemoveWarm(slab);
  }
  Use(slab, index);
  if (!slab->has_free()) Unlink(&size_class.partial, slab, &PageSlab::partial_links);
  return PageSlot{slab->slot(index), slab, index};
}

size_t PagePool::GiveBack(const PageSlot& slot) {
  const std::lock_guard lock(mutex_);
  PageSlab* slab = slot.slab;
  SizeClass& size_class = *slab->size_class;
  const size_t slot_bytes = size_class.slot_bytes;
  // First in line, so that the next Take finds a warm slot.
  if (slab->has_free()) Unlink(&size_class.partial, slab, &PageSlab::partial_links);
  Link(&size_class.partial, slab, &PageSlab::partial_links);
  Unuse(slab, slot.index);
  AddWarm(slab, slot.index);
  // The limit falls with what is in use. Every slot is trimmed at most once: O(1) on average.
  while (warm_ != nullptr && warm_bytes_ > WarmLimit()) TrimWarm();
  return slot_bytes;
}

void PagePool::Use(PageSlab* slab, uint32_t index) {
  const PageSlab::Pages pages = slab->PagesOf(index);
  for (size_t page = pages.begin; page < pages.end; ++page) {
    PageSlab::PageUse& use = slab->pages[page];
    if (use.used++ > 0) continue;
    used_pages_bytes_ += kSystemPageBytes;
    if (use.warm > 0) warm_bytes_ -= kSystemPageBytes;
  }
  ++slab->used;
  used_bytes_ += slab->size_class->slot_bytes;
}

void PagePool::Unuse(PageSlab* slab, uint32_t index) {
  const PageSlab::Pages pages = slab->PagesOf(index);
  for (size_t page = pages.begin; page < pages.end; ++page) {
    PageSlab::PageUse& use = slab->pages[page];
    if (--use.used > 0) continue;
    used_pages_bytes_ -= kSystemPageBytes;
    if (use.warm > 0) warm_bytes_ += kSystemPageBytes;
  }
  --slab->used;
  used_bytes_ -= slab->size_class->slot_bytes;
}

void PagePool::AddWarm(PageSlab* slab, uint32_t index) {
  if (!slab->warm.empty()) Unlink(&warm_, slab, &PageSlab::warm_links);
  Link(&warm_, slab, &PageSlab::warm_links);
  slab->warm.push_back(index);
  const PageSlab::Pages pages = slab->PagesOf(index);
  for (size_t page = pages.begin; page < pages.end; ++page) {
    PageSlab::PageUse& use = slab->pages[page];
    if (!use.resident()) warm_bytes_ += kSystemPageBytes;
    ++use.warm;
  }
}

uint32_t PagePool::RemoveWarm(PageSlab* slab) {
  const uint32_t index = slab->warm.back();
  slab->warm.pop_back();
  if (slab->warm.empty()) Unlink(&warm_, slab, &PageSlab::warm_links);
  const PageSlab::Pages pages = slab->PagesOf(index);
  for (size_t page = pages.begin; page < pages.end; ++page) {
    PageSlab::PageUse& use = slab->pages[page];
    --use.warm;
    if (!use.resident()) warm_bytes_ -= kSystemPageBytes;
  }
  return index;
}

void PagePool::TrimWarm() {
  PageSlab* slab = warm_;
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): RemoveSlab takes its slab off warm_
  if (slab->used == 0) return RemoveSlab(slab);
  const uint32_t index = RemoveWarm(slab);
  slab->AddCold(index);
  // Only the first and the last system page may have another slot in them.
  PageSlab::Pages pages = slab->PagesOf(index);
  if (slab->pages[pages.begin].resident()) ++pages.begin;
  if (pages.begin < pages.end && slab->pages[pages.end - 1].resident()) --pages.end;
  if (pages.begin == pages.end) return;
  memory_->Discard(slab->base + pages.begin * kSystemPageBytes, pages.bytes());
}

std::shared_ptr<PagePool> MakePagePool(uint64_t max_bytes, PageMemory* memory) {
  return std::make_shared<PagePool>(memory != nullptr ? memory : SystemPageMemory(), max_bytes);
}

uint64_t PagePoolBytesHeld(const PagePool& pool) { return pool.bytes_under_cap(); }

}  // namespace varve
