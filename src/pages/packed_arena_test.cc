#include "pages/packed_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "tests/cache_testing.h"

namespace varve {
namespace packed_arena_test {

TEST(PackedArena, BlocksAreApartAlignedAndWritable) {
  CountingMemory memory;
  PackedArena arena(&memory);
  struct Block {
    std::byte* data;
    size_t bytes;
    int fill;
  };
  std::vector<Block> blocks;
  SplitMix64 random(7);
  for (int i = 0; i < 4000; ++i) {
    if (blocks.empty() || random.Next() % 5 < 3) {
      const size_t bytes = 1 + random.Next() % 70000;
      const Result<std::byte*> data = arena.Take(bytes);
      ASSERT_OK(data.status());
      ASSERT_EQ(reinterpret_cast<uintptr_t>(*data) % 64, 0u);
      std::memset(*data, i & 0xFF, bytes);
      blocks.push_back({*data, bytes, i & 0xFF});
    } else {
      std::swap(blocks[random.Next() % blocks.size()], blocks.back());
      const Block block = blocks.back();
      for (size_t b : {size_t{0}, block.bytes / 2, block.bytes - 1})
        ASSERT_EQ(static_cast<int>(block.data[b]), block.fill);
      arena.GiveBack(block.data, block.bytes);
      blocks.pop_back();
    }
    // Every used byte is held, and no 4 KiB page more than touches one.
    ASSERT_GE(arena.bytes_held(), arena.bytes_used());
    ASSERT_LE(arena.bytes_held(), arena.bytes_used() + 2 * 4096 * blocks.size());
  }
  for (const Block& block : blocks) arena.GiveBack(block.data, block.bytes);
  EXPECT_EQ(arena.bytes_held(), 0u);
  EXPECT_EQ(arena.bytes_used(), 0u);
  EXPECT_EQ(arena.num_regions(), 0u);
}

// Memory of so many bytes in all.
class SmallMemory final : public PageMemory {
 public:
  explicit SmallMemory(size_t bytes) : left_(bytes) {}
  std::byte* Map(size_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return memory_.Map(bytes);
  }
  void Discard(std::byte* address, size_t bytes) override { memory_.Discard(address, bytes); }
  void Unmap(std::byte* address, size_t bytes) override {
    left_ += bytes;
    memory_.Unmap(address, bytes);
  }
  size_t left() const { return left_; }

 private:
  CountingMemory memory_;
  size_t left_;
};

TEST(PackedArena, WithSmallGranulesTheRoomIsUsedToItsLastBlocks) {
  for (const size_t room : {size_t{40} << 10, size_t{500} << 10, size_t{3} << 20}) {
    SmallMemory memory(room);
    PackedArena arena(&memory, nullptr, 4096);
    std::vector<std::byte*> blocks;
    for (;;) {
      const Result<std::byte*> block = arena.Take(10000);
      if (!block.ok()) {
        EXPECT_EQ(block.status().code(), StatusCode::kOutOfMemory);
        break;
      }
      blocks.push_back(*block);
    }
    EXPECT_GT(blocks.size() * 10000, room * 3 / 4) << room;
    for (std::byte* block : blocks) arena.GiveBack(block, 10000);
    EXPECT_EQ(memory.left(), room);
  }
}

TEST(PackedArena, FreedNeighboursBecomeOneAndAreUsedAgain) {
  CountingMemory memory;
  PackedArena arena(&memory);
  std::byte* a = *arena.Take(1 << 20);
  std::byte* b = *arena.Take(1 << 19);
  std::byte* c = *arena.Take(1 << 19);
  EXPECT_EQ(arena.num_regions(), 1u);
  EXPECT_EQ(a + (1 << 20), b);
  arena.GiveBack(a, 1 << 20);
  arena.GiveBack(b, 1 << 19);
  EXPECT_EQ(arena.bytes_held(), uint64_t{1} << 19);
  EXPECT_GT(memory.discards, 0);
  EXPECT_EQ(*arena.Take((1 << 20) + (1 << 19)), a);
  EXPECT_EQ(arena.num_regions(), 1u);
  arena.GiveBack(a, (1 << 20) + (1 << 19));
  arena.GiveBack(c, 1 << 19);
  EXPECT_EQ(arena.num_regions(), 0u);
}

TEST(PackedArena, ABlockLargerThanARegionHasOneOfItsOwn) {
  CountingMemory memory;
  PackedArena arena(&memory);
  std::byte* block = *arena.Take(5 << 20);
  std::memset(block, 1, 5 << 20);
  EXPECT_EQ(arena.bytes_held(), uint64_t{5} << 20);
  arena.GiveBack(block, 5 << 20);
}

}  // namespace packed_arena_test
}  // namespace varve
