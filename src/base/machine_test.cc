#include "base/machine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace varve {
namespace machine_test {

TEST(Machine, ReadsCacheSizesAsSysfsWritesThem) {
  EXPECT_EQ(ParseCacheSize("32K"), 32u << 10);
  EXPECT_EQ(ParseCacheSize("36M"), 36u << 20);
  EXPECT_EQ(ParseCacheSize("512"), 512u);
  EXPECT_EQ(ParseCacheSize(""), 0u);
  EXPECT_EQ(ParseCacheSize("K"), 0u);
  EXPECT_EQ(ParseCacheSize("12G"), 0u);
  EXPECT_EQ(ParseCacheSize("99999999999999999999K"), 0u);
  EXPECT_EQ(ParseCacheSize("18446744073709551615M"), 0u);
}

TEST(Machine, NamesTheCpuAndCountsAtLeastOneCore) {
  const MachineInfo machine = DescribeMachine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.total_memory_bytes, 0u);
}

TEST(Machine, ResidentBytesFollowTouchedMemory) {
  constexpr size_t kBytes = size_t{64} << 20;
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  auto block = std::make_unique_for_overwrite<char[]>(kBytes);
  std::memset(block.get(), 1, kBytes);
  EXPECT_EQ(block[kBytes / 2], 1);
  EXPECT_GE(ResidentBytes(), before + kBytes / 2);
}

}  // namespace machine_test
}  // namespace varve
