#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace varve {
namespace half_test {

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = F16ToF32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(f))));
      continue;
    }
    ASSERT_EQ(F32ToF16(f), h) << f;
  }
}

TEST(Half, NarrowingIsNearestEven) {
  // Every midpoint between neighbouring finite f16 values goes to the even one, and a nudge to
  // either side goes to the nearer one.
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const float lo = F16ToF32(static_cast<uint16_t>(h));
    const float hi = F16ToF32(static_cast<uint16_t>(h + 1));
    const float mid = lo + (hi - lo) / 2;
    ASSERT_EQ(F32ToF16(mid), (h & 1) ? h + 1 : h) << mid;
    ASSERT_EQ(F32ToF16(std::nextafter(mid, 0.0f)), h) << mid;
    ASSERT_EQ(F32ToF16(std::nextafter(mid, 1e30f)), h + 1) << mid;
  }
}

TEST(Half, OverflowIsInfinityAndNanStaysNan) {
  EXPECT_EQ(F32ToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xFC00);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::numeric_limits<float>::signaling_NaN()))));
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(F32ToBF16(1.0f), 0x3F80);
  EXPECT_EQ(F32ToBF16(1.00390625f), 0x3F80);  // halfway, even below
  EXPECT_EQ(F32ToBF16(1.01171875f), 0x3F82);  // halfway, even above
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::infinity()), 0x7F80);
}

}  // namespace half_test
}  // namespace varve
