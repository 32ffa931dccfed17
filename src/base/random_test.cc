#include "base/random.h"

#include <gtest/gtest.h>

namespace varve {
namespace random_test {

// The published generator from the seed 1234567. Files and figures depend on it.
TEST(SplitMix64, GivesThePublishedNumbers) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
  EXPECT_EQ(random.Next(), 4593380528125082431u);
  EXPECT_EQ(random.Next(), 16408922859458223821u);
}

TEST(SplitMix64, IsAHashAtCompileTime) {
  static_assert(SplitMix64(0).Next() == 0xE220A8397B1DCDAFu);
  static_assert(SplitMix64(1).Next() != SplitMix64(0).Next());
}

}  // namespace random_test
}  // namespace varve
