// A page pool under hard conditions, as a program of its own: it replaces operator new to make
// single allocations fail, and its threads are few enough to run under ThreadSanitizer in a second.
// It needs the sources of src/pages alone. Prints what is wrong; the exit code is the number of
// failures.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "pages/packed_arena.h"
#include "pages/page_pool.h"

namespace {

// How many allocations of this thread succeed before one fails; negative: all do.
thread_local int allocations_left = -1;

void* Allocate(size_t bytes) {
  if (allocations_left == 0) {
    allocations_left = -1;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace varve {
namespace {

std::atomic<int> failures = 0;

void Expect(bool holds, const char* promise) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "not true: %s\n", promise);
}

class CountedMemory final : public PageMemory {
 public:
  std::byte* Map(size_t bytes) override {
    ++mapped;
    return SystemPageMemory()->Map(bytes);
  }
  void Discard(std::byte* address, size_t bytes) override {
    SystemPageMemory()->Discard(address, bytes);
  }
  void Unmap(std::byte* address, size_t bytes) override {
    --mapped;
    SystemPageMemory()->Unmap(address, bytes);
  }
  std::atomic<int> mapped = 0;
};

// Whichever allocation fails: the pool can be used afterwards, and destroyed, and leaks no mapping.
void FailEveryAllocationOnce() {
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    CountedMemory memory;
    {
      PagePool pool(&memory, 0);
      failed = false;
      allocations_left = nth;
      try {
        const Result<PageSlot> slot = pool.Take(5000);
        allocations_left = -1;
        pool.GiveBack(*slot);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
      allocations_left = -1;
      Expect(failed || nth > 2, "taking the first slot allocates");
      Expect(pool.bytes_in_slots() == 0, "a failed allocation takes no slot");
      if (nth % 2 == 0) {
        const Result<PageSlot> slot = pool.Take(5000);
        Expect(slot.ok(), "a pool works after a failed allocation");
        pool.GiveBack(*slot);
      }
    }
    Expect(memory.mapped == 0, "a failed allocation leaks no mapping");
  }
}

// Takes, fills, checks and gives back slots and blocks of many sizes.
void Work(const std::shared_ptr<PagePool>& pool, int thread, uint64_t cap) {
  PoolShare share(pool);
  PackedArena arena(share.memory(), share.outside_bytes());
  std::vector<std::pair<PageSlot, size_t>> slots;
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (int round = 0; round < 400; ++round) {
    const size_t bytes = 300 + static_cast<size_t>((round * 7919 + thread * 104729) % 20000);
    const Result<PageSlot> slot = share.Take(bytes);
    if (slot.ok()) {
      std::memset(slot->data, thread + 1, bytes);
      slots.emplace_back(*slot, bytes);
    }
    if (round % 3 == 0 && share.CheckRoom(PackedArena::MostBytes(bytes)).ok()) {
      const Result<std::byte*> block = arena.Take(bytes);
      if (block.ok()) blocks.emplace_back(*block, bytes);
    }
    Expect(pool->bytes_held() <= cap, "slots of all threads stay below the cap");
    if (round % 4 == 3 || !slot.ok()) {
      while (slots.size() > static_cast<size_t>(round % 11)) {
        const auto [data, size] = slots.back();
        bool own = true;
        for (size_t i = 0; i < size; ++i) own = own && data.data[i] == std::byte(thread + 1);
        Expect(own, "nobody else writes to a slot");
        share.GiveBack(data);
        slots.pop_back();
      }
      for (const auto& [block, size] : blocks) arena.GiveBack(block, size);
      blocks.clear();
    }
  }
  for (const auto& [slot, size] : slots) share.GiveBack(slot);
  for (const auto& [block, size] : blocks) arena.GiveBack(block, size);
  Expect(share.bytes_held() == 0, "a share that gave everything back holds nothing");
}

void ShareAmongThreads() {
  CountedMemory memory;
  constexpr uint64_t kCap = 600 << 10;
  {
    const std::shared_ptr<PagePool> pool = MakePagePool(kCap, &memory);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back(Work, pool, thread, kCap);
    for (std::thread& thread : threads) thread.join();
    Expect(pool->bytes_in_slots() == 0, "every slot has come back");
    Expect(*pool->outside_bytes() == 0, "every block has come back");
  }
  Expect(memory.mapped == 0, "a destroyed pool has unmapped everything");
}

}  // namespace
}  // namespace varve

int main() {
  varve::FailEveryAllocationOnce();
  varve::ShareAmongThreads();
  return varve::failures;
}
