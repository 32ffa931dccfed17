#include "pages/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace page_pool_test {

constexpr size_t kSlot = 64 << 10;
constexpr size_t kSlotsPerSlab = kSlabGranule / kSlot;

std::vector<PageSlot> TakeMany(PagePool& pool, size_t count, size_t bytes = kSlot) {
  std::vector<PageSlot> slots;
  for (size_t i = 0; i < count; ++i) {
    Result<PageSlot> slot = pool.Take(bytes);
    EXPECT_OK(slot.status());
    slots.push_back(*slot);
  }
  return slots;
}

TEST(PagePool, SlotsAreDisjointWritableAndAligned) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  std::set<std::byte*> starts;
  std::vector<PageSlot> slots = TakeMany(pool, 3 * kSlotsPerSlab, kSlot - 5);
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots[i].data) % kSystemPageBytes, 0u);
    std::memset(slots[i].data, static_cast<int>(i), kSlot);
    starts.insert(slots[i].data);
  }
  EXPECT_EQ(starts.size(), slots.size());
  for (std::byte* next : starts) {
    const auto after = starts.upper_bound(next);
    if (after != starts.end()) {
      EXPECT_GE(static_cast<size_t>(*after - next), kSlot);
    }
  }
  for (size_t i = 0; i < slots.size(); ++i)
    EXPECT_EQ(slots[i].data[kSlot - 1], static_cast<std::byte>(i));
  EXPECT_EQ(pool.num_slabs(), 3u);
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
}

TEST(PagePool, CountsWholeSlotsAndWholeSystemPages) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  EXPECT_EQ(SlotBytes(1), 256u);
  EXPECT_EQ(SlotBytes(256), 256u);
  EXPECT_EQ(SlotBytes(4097), 4352u);
  const PageSlot slot = *pool.Take(4097);
  EXPECT_EQ(pool.bytes_in_slots(), 4352u);
  EXPECT_EQ(pool.bytes_held(), 8192u);
  pool.GiveBack(slot);
  EXPECT_EQ(pool.bytes_in_slots(), 0u);
}

TEST(PagePool, ReusesASlotWithoutAskingTheSystem) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  const PageSlot kept = *pool.Take(kSlot);
  std::byte* first = nullptr;
  for (int i = 0; i < 1000; ++i) {
    const PageSlot slot = *pool.Take(kSlot);
    if (first == nullptr) first = slot.data;
    EXPECT_EQ(slot.data, first);
    pool.GiveBack(slot);
  }
  EXPECT_EQ(memory.maps, 1);
  EXPECT_EQ(memory.unmaps, 0);
  EXPECT_EQ(memory.discards, 0);
  pool.GiveBack(kept);
}

TEST(PagePool, SizeClassesDoNotShareSlabs) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  std::vector<PageSlot> slots;
  for (size_t bytes : {4096u, 8192u, 12288u}) slots.push_back(*pool.Take(bytes));
  EXPECT_EQ(pool.num_slabs(), 3u);
  slots.push_back(*pool.Take(8000));  // the class of 8192
  EXPECT_EQ(pool.num_slabs(), 3u);
  EXPECT_EQ(slots[3].slab, slots[1].slab);
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
}

TEST(PagePool, SlabsOfLargeSlotsLeaveLittleOver) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  const size_t large = 5 << 20;
  const PageSlot a = *pool.Take(large);
  const PageSlot b = *pool.Take(large);
  EXPECT_EQ(pool.num_slabs(), 1u);
  EXPECT_EQ(memory.bytes_mapped, 2 * large);  // one slot in 6 MiB would waste a sixth
  EXPECT_EQ(pool.bytes_held(), 2 * large);
  std::memset(a.data, 1, large);
  std::memset(b.data, 2, large);
  EXPECT_EQ(a.data[large - 1], std::byte{1});
  pool.GiveBack(a);
  EXPECT_EQ(pool.bytes_held(), large);
  pool.GiveBack(b);
  EXPECT_EQ(memory.bytes_mapped, 0u);

  // 17/16 MiB: a page of q8_0 with 64 KV heads. 13 of them fill 14 MiB but for 1/74.
  const size_t odd = size_t{17} << 16;
  const PageSlot c = *pool.Take(odd);
  EXPECT_EQ(memory.bytes_mapped, size_t{14} << 20);
  pool.GiveBack(c);
}

TEST(PagePool, ReturnsEmptySlabToTheSystem) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  const std::vector<PageSlot> slots = TakeMany(pool, 16 * kSlotsPerSlab);
  EXPECT_EQ(pool.num_slabs(), 16u);
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
  // What stays is the small warm reserve.
  EXPECT_LE(pool.bytes_held(), size_t{128} << 10);
  EXPECT_LE(pool.num_slabs(), 1u);
  EXPECT_EQ(memory.bytes_mapped, pool.num_slabs() * kSlabGranule);
}

TEST(PagePool, DiscardsSlotsOfSlabsThatAreStillInUse) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  const std::vector<PageSlot> slots = TakeMany(pool, 32 * kSlotsPerSlab);  // 64 MiB
  // All but one slot of each slab.
  std::vector<PageSlot> kept;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i % kSlotsPerSlab == 0)
      kept.push_back(slots[i]);
    else
      pool.GiveBack(slots[i]);
  }
  EXPECT_EQ(pool.bytes_in_slots(), 32 * kSlot);
  EXPECT_LE(pool.bytes_held(), 32 * kSlot + (size_t{2} << 20));
  EXPECT_GT(memory.discards, 900);
  for (const PageSlot& slot : kept) pool.GiveBack(slot);
  EXPECT_LE(pool.bytes_held(), size_t{128} << 10);
}

TEST(PagePool, TheWarmReserveShrinksWithWhatIsInUse) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  const std::vector<PageSlot> slots = TakeMany(pool, 512, kSlabGranule);  // 1 GiB, never touched
  for (size_t i = 0; i < slots.size(); ++i) {
    pool.GiveBack(slots[i]);
    const uint64_t used = (slots.size() - 1 - i) * kSlabGranule;
    ASSERT_EQ(pool.bytes_in_slots(), used);
    ASSERT_LE(pool.bytes_held(), used + used / 64 + (128 << 10));
  }
  EXPECT_EQ(memory.bytes_mapped, 0u);
}

TEST(PagePool, FreesEverythingWhenDestroyed) {
  CountingMemory memory;
  {
    PagePool pool(&memory, 0);
    for (const PageSlot& slot : TakeMany(pool, 5)) pool.GiveBack(slot);
    for (const PageSlot& slot : TakeMany(pool, 5, 4096)) pool.GiveBack(slot);
    EXPECT_GT(memory.bytes_mapped, 0u);
  }
  EXPECT_EQ(memory.bytes_mapped, 0u);
  EXPECT_EQ(memory.maps, memory.unmaps);
}

TEST(PagePool, TheCapNamesWhatIsWantedHeldAndAllowed) {
  CountingMemory memory;
  PagePool pool(&memory, 3 * kSlot + 100);
  std::vector<PageSlot> slots = TakeMany(pool, 3);
  const Result<PageSlot> refused = pool.Take(kSlot);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(refused.status().message(),
            "page pool: 65536 bytes wanted, bytes_held 196608, max_bytes 196708");
  pool.GiveBack(slots.back());
  slots.back() = *pool.Take(kSlot);
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
}

TEST(PagePool, WarmSlotsOfOtherSizesMakeRoomUnderTheCap) {
  CountingMemory memory;
  PagePool pool(&memory, 2 * kSlot);
  for (const PageSlot& slot : TakeMany(pool, 2)) pool.GiveBack(slot);
  EXPECT_EQ(pool.bytes_held(), 2 * kSlot);  // warm
  const std::vector<PageSlot> slots = TakeMany(pool, 4, kSlot / 2);
  EXPECT_EQ(pool.bytes_held(), 2 * kSlot);
  EXPECT_FALSE(pool.CheckRoom(1).ok());
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
  EXPECT_OK(pool.CheckRoom(2 * kSlot));
  EXPECT_FALSE(pool.CheckRoom(2 * kSlot + 1).ok());
}

TEST(PagePool, BytesHeldNeverPassesTheCap) {
  CountingMemory memory;
  PagePool pool(&memory, 1 << 20);
  RowRandom random(5);
  std::vector<PageSlot> slots;
  for (int i = 0; i < 20000; ++i) {
    if (random.Below(2) == 0 && !slots.empty()) {
      const size_t at = random.Below(static_cast<int>(slots.size()));
      pool.GiveBack(slots[at]);
      slots.erase(slots.begin() + at);
    } else {
      Result<PageSlot> slot = pool.Take(4096u * (1 + random.Below(12)));
      if (slot.ok()) slots.push_back(*slot);
    }
    ASSERT_LE(pool.bytes_held(), 1u << 20);
  }
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
  EXPECT_EQ(pool.bytes_in_slots(), 0u);
}

TEST(PagePool, ARefusalOfTheSystemIsAStatusAndChangesNothing) {
  CountingMemory memory;
  PagePool pool(&memory, 0);
  std::vector<PageSlot> slots = TakeMany(pool, kSlotsPerSlab);
  memory.maps_left = 0;
  for (int i = 0; i < 2; ++i) {
    const Result<PageSlot> refused = pool.Take(kSlot);
    EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(refused.status().message(),
              "page pool: the system refused a slab of 2097152 bytes; bytes_held 2097152");
    EXPECT_EQ(pool.bytes_held(), kSlabGranule);
    EXPECT_EQ(pool.num_slabs(), 1u);
  }
  memory.maps_left = -1;
  slots.push_back(*pool.Take(kSlot));
  for (const PageSlot& slot : slots) pool.GiveBack(slot);
}

}  // namespace page_pool_test
}  // namespace varve
