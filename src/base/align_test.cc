#include "base/align.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace varve {
namespace align_test {

TEST(Align, RoundsUpToTheNextMultiple) {
  EXPECT_EQ(AlignUp(0, 64), 0);
  EXPECT_EQ(AlignUp(1, 64), 64);
  EXPECT_EQ(AlignUp(64, 64), 64);
  EXPECT_EQ(AlignUp(65, 64), 128);
  EXPECT_EQ(AlignUp(size_t{7}, 3), 9u);  // no power of two
  EXPECT_EQ(AlignUp(uint64_t{1} << 40, 4096), uint64_t{1} << 40);
}

TEST(Align, RoundsDownToTheMultipleBefore) {
  EXPECT_EQ(AlignDown(63, 64), 0);
  EXPECT_EQ(AlignDown(64, 64), 64);
  EXPECT_EQ(AlignDown(size_t{8}, 3), 6u);
  EXPECT_EQ(AlignDown((uint64_t{1} << 40) + 4095, 4096), uint64_t{1} << 40);
}

TEST(Align, CountsThePiecesThatHoldAValue) {
  EXPECT_EQ(CeilDiv(0, 64), 0);
  EXPECT_EQ(CeilDiv(1, 64), 1);
  EXPECT_EQ(CeilDiv(64, 64), 1);
  EXPECT_EQ(CeilDiv(int64_t{65}, 64), 2);
}

}  // namespace align_test
}  // namespace varve
