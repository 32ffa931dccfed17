#include "store/key_rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "store/rotation_testing.h"

namespace varve::store {
namespace key_rotation_test {

PartShape ShapeOf(LaneType lane, int dim = 64) { return {lane, PartLayout::kKey, 2, 64, dim}; }

uint32_t TurnsOf(double base, int pair, int pairs) {
  const double radians = std::pow(base, -static_cast<double>(pair) / pairs);
  return static_cast<uint32_t>(std::llround(radians / (2 * std::numbers::pi) * 0x1p32));
}

TEST(KeyRotation, IsFoundInBothOrdersAndPrecisions) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
    for (const RotationOrder order : {RotationOrder::kInterleaved, RotationOrder::kHalves}) {
      for (const double base : {10000.0, 500000.0}) {
        const auto pages = MakeKeyPages(ShapeOf(lane), order, 8, 60, base);
        const auto found = FindRotation(GatherKeyRows(ViewsOf(pages)), 0.1);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->rotation.order, order);
        EXPECT_EQ(found->groups.size(), 60u);
        // A round base is recognised, so that frequencies are exact.
        for (int i = 0; i < 32; ++i) {
          EXPECT_EQ(found->rotation.turns[static_cast<size_t>(i)], TurnsOf(base, i, 32)) << i;
        }
      }
    }
  }
}

TEST(KeyRotation, OddFrequenciesAreMeasured) {
  const double base = 12345.678;
  const auto pages = MakeKeyPages(ShapeOf(LaneType::kF16), RotationOrder::kHalves, 8, 100, base);
  const auto found = FindRotation(GatherKeyRows(ViewsOf(pages)), 0.1);
  ASSERT_TRUE(found.has_value());
  for (int i = 0; i < 32; ++i) {
    const double error =
        static_cast<int32_t>(found->rotation.turns[static_cast<size_t>(i)] - TurnsOf(base, i, 32));
    // Over the 512 tokens that were seen: less than a thousandth of a radian.
    EXPECT_LT(std::abs(error) * 512 / 0x1p32 * 2 * std::numbers::pi, 1e-3) << i;
  }
}

TEST(KeyRotation, IsNotFoundWhereRowsDoNotTurn) {
  const PartShape shape = ShapeOf(LaneType::kF16);
  const TestPart noise = MakePart(shape, 3);
  const PartView once[] = {{shape, noise.bytes.data(), 0, 0}};
  EXPECT_FALSE(FindRotation(GatherKeyRows(once), 0.1).has_value());
  // The same rows again 64 tokens on, not turned: every pair would have to turn a whole number of
  // times in 64 tokens, and frequencies fall.
  const PartView twice[] = {{shape, noise.bytes.data(), 0, 0}, {shape, noise.bytes.data(), 0, 63}};
  const auto found = FindRotation(GatherKeyRows(twice), 0.1);
  if (found) {
    for (const uint32_t turns : found->rotation.turns) EXPECT_EQ(turns, 0u);
  }
  // Without positions nothing can be told.
  const PartView unknown[] = {{shape, noise.bytes.data(), 0}};
  EXPECT_TRUE(GatherKeyRows(unknown).positions.empty());
}

TEST(KeyRotation, RowsOfZerosAndInfinitiesAreLeftOut) {
  const PartShape shape = ShapeOf(LaneType::kF16);
  std::vector<KeyPage> pages = MakeKeyPages(shape, RotationOrder::kHalves, 1, 10);
  const uint16_t infinity = 0x7C00;
  std::memcpy(pages[0].part.bytes.data() + FloatOffset(shape, 5, 7), &infinity, 2);
  std::vector<std::byte> zeros(2 * shape.Bytes() / static_cast<size_t>(shape.num_rows));
  ScatterRow(shape, zeros.data(), 9, {pages[0].part.bytes, 0});
  const KeyRows rows = GatherKeyRows(ViewsOf(pages));
  EXPECT_EQ(rows.positions.size(), 62u);
  EXPECT_EQ(rows.words.size(), 62u * 128);
}

}  // namespace key_rotation_test
}  // namespace varve::store
