// Slots that share system pages: what they cost, what comes back, and that the cap counts both.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/align.h"
#include "pages/page_pool.h"
#include "tests/cache_testing.h"

namespace varve {
namespace page_pool_sharing_test {

// Pages of 64 tokens, 2 heads of 128 channels, at about 2, 3, 4 and 4.5 bits a value.
constexpr size_t kPageSizes[] = {8704, 12800, 16896, 18432};

// Small pages of the system only, so that mincore can tell what is resident.
class SmallPageMemory final : public PageMemory {
 public:
  std::byte* Map(size_t bytes) override {
    void* address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    madvise(address, bytes, MADV_NOHUGEPAGE);
    mapped_[static_cast<std::byte*>(address)] = bytes;
    return static_cast<std::byte*>(address);
  }
  void Discard(std::byte* address, size_t bytes) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % kSystemPageBytes, 0u);
    EXPECT_EQ(bytes % kSystemPageBytes, 0u);
    madvise(address, bytes, MADV_DONTNEED);
  }
  void Unmap(std::byte* address, size_t bytes) override {
    EXPECT_EQ(mapped_[address], bytes);
    mapped_.erase(address);
    munmap(address, bytes);
  }

  uint64_t ResidentBytes() const {
    uint64_t resident = 0;
    for (const auto& [address, bytes] : mapped_) {
      std::vector<unsigned char> pages(bytes / kSystemPageBytes);
      EXPECT_EQ(mincore(address, bytes, pages.data()), 0);
      for (unsigned char page : pages) resident += page & 1;
    }
    return resident * kSystemPageBytes;
  }

 private:
  std::map<std::byte*, size_t> mapped_;
};

struct UsedSlot {
  PageSlot slot;
  size_t bytes;
  uint8_t mark;
};

// What the pool does, the plain way: the set of all system pages with a used slot in them.
uint64_t BytesOfTouchedPages(const std::vector<UsedSlot>& slots) {
  std::set<uintptr_t> pages;
  for (const UsedSlot& used : slots) {
    const auto begin = reinterpret_cast<uintptr_t>(used.slot.data);
    const uintptr_t end = begin + SlotBytes(used.bytes);
    for (uintptr_t page = begin / kSystemPageBytes; page * kSystemPageBytes < end; ++page)
      pages.insert(page);
  }
  return pages.size() * kSystemPageBytes;
}

UsedSlot Written(const PageSlot& slot, size_t bytes, size_t mark) {
  const auto value = static_cast<uint8_t>(mark);
  std::memset(slot.data, value, SlotBytes(bytes));
  return {slot, bytes, value};
}

bool IsIntact(const UsedSlot& used) {
  return std::all_of(used.slot.data, used.slot.data + SlotBytes(used.bytes),
                     [&](std::byte byte) { return byte == std::byte{used.mark}; });
}

std::vector<UsedSlot> TakeWritten(PagePool& pool, size_t count, size_t bytes) {
  std::vector<UsedSlot> slots;
  for (size_t i = 0; i < count; ++i) {
    Result<PageSlot> slot = pool.Take(bytes);
    EXPECT_OK(slot.status());
    slots.push_back(Written(*slot, bytes, i));
  }
  return slots;
}

// Far above what the tests take; asking for all of it discards every warm slot.
constexpr uint64_t kRoomy = uint64_t{1} << 40;
void DiscardWarm(PagePool& pool) { EXPECT_FALSE(pool.CheckRoom(kRoomy + 1).ok()); }

TEST(PagePoolSharing, BoundsOfASlotAreThoseOfItsWorstPlace) {
  for (size_t slot = kSlotGranule; slot <= 5 * kSystemPageBytes; slot += kSlotGranule) {
    size_t most = 0, least = slot;
    for (size_t index = 0; index < 16; ++index) {
      const size_t begin = index * slot, end = begin + slot;
      const size_t first_inside = CeilDiv(begin, kSystemPageBytes);
      const size_t end_inside = end / kSystemPageBytes;
      const size_t end_touched = CeilDiv(end, kSystemPageBytes);
      most = std::max(most, (end_touched - begin / kSystemPageBytes) * kSystemPageBytes);
      least =
          std::min(least, end_inside > first_inside ? (end_inside - first_inside) * kSystemPageBytes
                                                    : size_t{0});
    }
    EXPECT_EQ(MostSlotBytes(slot), most) << slot;
    EXPECT_EQ(LeastSlotBytes(slot), least) << slot;
    EXPECT_EQ(MostSlotBytes(slot - 3), most) << slot;
  }
}

TEST(PagePoolSharing, ManyPagesCostTheirPayload) {
  for (const size_t bytes : kPageSizes) {
    SCOPED_TRACE(bytes);
    CountingMemory memory;
    PagePool pool(&memory, 0);
    std::vector<PageSlot> slots;
    for (int i = 0; i < 1000; ++i) slots.push_back(*pool.Take(bytes));
    EXPECT_EQ(pool.bytes_in_slots(), 1000 * bytes);
    EXPECT_GE(pool.bytes_held(), 1000 * bytes);
    EXPECT_LE(static_cast<double>(pool.bytes_held()), 1000.0 * static_cast<double>(bytes) * 1.02);
    for (const PageSlot& slot : slots) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.data) % kSlotGranule, 0u);
      pool.GiveBack(slot);
    }
  }
}

TEST(PagePoolSharing, EverySecondSlotGivesBackTheSystemPagesThatNoOtherKeeps) {
  for (const size_t bytes : {size_t{256}, size_t{1280}, size_t{4352}, size_t{8704}, size_t{12800},
                             size_t{16896}, size_t{18432}, size_t{20480}}) {
    SCOPED_TRACE(bytes);
    SmallPageMemory memory;
    PagePool pool(&memory, kRoomy);
    const std::vector<UsedSlot> slots = TakeWritten(pool, 700, bytes);
    EXPECT_EQ(pool.bytes_held(), BytesOfTouchedPages(slots));
    std::vector<UsedSlot> kept;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (i % 2 == 0)
        kept.push_back(slots[i]);
      else
        pool.GiveBack(slots[i].slot);
    }
    DiscardWarm(pool);
    EXPECT_EQ(pool.bytes_held(), BytesOfTouchedPages(kept));
    EXPECT_EQ(pool.bytes_held(), memory.ResidentBytes());
    for (const UsedSlot& used : kept) EXPECT_TRUE(IsIntact(used));
    for (const UsedSlot& used : kept) pool.GiveBack(used.slot);
    DiscardWarm(pool);
    EXPECT_EQ(pool.bytes_held(), 0u);
    EXPECT_EQ(pool.num_slabs(), 0u);
  }
}

TEST(PagePoolSharing, HolesAreFilledBeforeFreshMemory) {
  CountingMemory memory;
  PagePool pool(&memory, kRoomy);
  std::vector<UsedSlot> slots = TakeWritten(pool, 100, 8704);
  const uint64_t full = pool.bytes_held();
  for (size_t i = 0; i < slots.size(); i += 3) pool.GiveBack(slots[i].slot);
  DiscardWarm(pool);
  EXPECT_LT(pool.bytes_held(), full);
  std::byte* last = nullptr;
  for (size_t i = 0; i < slots.size(); i += 3) {
    slots[i].slot = *pool.Take(8704);
    EXPECT_GT(slots[i].slot.data, last);  // the lowest first
    last = slots[i].slot.data;
  }
  EXPECT_EQ(pool.bytes_held(), full);
  EXPECT_EQ(pool.num_slabs(), 1u);
  for (const UsedSlot& used : slots) pool.GiveBack(used.slot);
}

// The pool beside the plain set of pages, while slots of many sizes come and go under a cap.
TEST(PagePoolSharing, TheCapHoldsAndBytesHeldAreTheTouchedPagesWhateverComesAndGoes) {
  constexpr uint64_t kCap = 1 << 20;
  const size_t sizes[] = {300, 2304, 4352, 8704, 12800, 16896, 18432, 65536};
  SmallPageMemory memory;
  PagePool pool(&memory, kCap);
  RowRandom random(11);
  std::vector<UsedSlot> slots;
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    // Long phases of growing and of shrinking.
    const bool grows = random.Below(8) < (i / 600 % 2 == 0 ? 5 : 3);
    if (!grows && !slots.empty()) {
      const size_t at = static_cast<size_t>(random.Below(static_cast<int>(slots.size())));
      ASSERT_TRUE(IsIntact(slots[at]));
      pool.GiveBack(slots[at].slot);
      slots.erase(slots.begin() + static_cast<int64_t>(at));
    } else {
      const size_t bytes = sizes[random.Below(8)];
      const bool granted = pool.CheckRoom(MostSlotBytes(bytes)).ok();
      Result<PageSlot> slot = pool.Take(bytes);
      if (granted) {
        ASSERT_OK(slot.status());
      }
      if (slot.ok()) {
        slots.push_back(Written(*slot, bytes, static_cast<size_t>(i)));
      } else {
        ++refused;
        EXPECT_EQ(pool.bytes_held(), BytesOfTouchedPages(slots));  // nothing warm is left
        EXPECT_GT(pool.bytes_held() + MostSlotBytes(bytes), kCap);
      }
    }
    ASSERT_LE(pool.bytes_held(), kCap);
    if (i % 16 != 0) continue;
    const uint64_t touched = BytesOfTouchedPages(slots);
    ASSERT_GE(pool.bytes_held(), touched);
    ASSERT_LE(pool.bytes_held(), touched + (128 << 10) + pool.bytes_in_slots() / 64);
    ASSERT_EQ(pool.bytes_held(), memory.ResidentBytes());
  }
  EXPECT_GT(refused, 100);
  for (const UsedSlot& used : slots) pool.GiveBack(used.slot);
  EXPECT_LE(pool.bytes_held(), uint64_t{128} << 10);
}

// What a step asks for at once: slots of several sizes, and old ones that go when new ones are in.
TEST(PagePoolSharing, WhatCheckRoomGrantsCanBeTakenInAnyOrder) {
  constexpr uint64_t kCap = 512 << 10;
  RowRandom random(3);
  int granted = 0;
  for (int round = 0; round < 300; ++round) {
    CountingMemory memory;
    PagePool pool(&memory, kCap);
    std::vector<UsedSlot> slots;
    for (int i = 0; i < 60; ++i) {
      const size_t bytes = kPageSizes[random.Below(4)];
      Result<PageSlot> slot = pool.Take(bytes);
      if (slot.ok()) slots.push_back({*slot, bytes, 0});
      if (random.Below(3) > 0 || slots.empty()) continue;
      std::swap(slots[static_cast<size_t>(random.Below(static_cast<int>(slots.size())))],
                slots.back());
      pool.GiveBack(slots.back().slot);
      slots.pop_back();
    }
    // Every slot of 18432 bytes becomes one of 8704, one at a time.
    uint64_t growth = 0;
    for (const UsedSlot& used : slots) {
      if (used.bytes != 18432) continue;
      const uint64_t more = MostSlotBytes(8704), less = LeastSlotBytes(18432);
      if (more > less) growth += more - less;
    }
    if (!pool.CheckRoom(growth + MostSlotBytes(8704)).ok()) {
      for (const UsedSlot& used : slots) pool.GiveBack(used.slot);
      continue;
    }
    ++granted;
    for (UsedSlot& used : slots) {
      if (used.bytes != 18432) continue;
      Result<PageSlot> smaller = pool.Take(8704);
      ASSERT_OK(smaller.status());
      pool.GiveBack(used.slot);
      used = {*smaller, 8704, 0};
      ASSERT_LE(pool.bytes_held(), kCap);
    }
    for (const UsedSlot& used : slots) pool.GiveBack(used.slot);
  }
  EXPECT_GT(granted, 20);
}

}  // namespace page_pool_sharing_test
}  // namespace varve
