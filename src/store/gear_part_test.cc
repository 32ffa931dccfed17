#include "store/gear_part.h"

#include <gtest/gtest.h>

#include <cstring>

#include "store/gear_frame.h"
#include "store/part_codec.h"
#include "store/part_testing.h"

namespace varve::store {
namespace gear_part_test {

PartShape ShapeOf(LaneType lane, PartLayout layout) { return {lane, layout, 1, 32, 64}; }

TEST(GearPart, RoundTripsBitForBitInEveryLaneAndLayout) {
  for (const LaneType lane : {LaneType::kF32, LaneType::kF16, LaneType::kBF16}) {
    for (const PartLayout layout : {PartLayout::kKey, PartLayout::kValue, PartLayout::kRows}) {
      const TestPart part = MakePart(ShapeOf(lane, layout), 3);
      const std::vector<std::byte> packed = *PackGear(part.view(), GearPredictorSet::Keys());
      EXPECT_EQ(ReadPackedInfo(packed)->mode, PackMode::kGear);
      EXPECT_LT(packed.size(), part.bytes.size());
      std::vector<std::byte> out(part.bytes.size());
      ASSERT_TRUE(Unpack(packed, nullptr, {out, 0}).ok());
      EXPECT_EQ(out, part.bytes);
    }
  }
}

TEST(GearPart, ThePayloadIsTheFrameOfTheRows) {
  const TestPart part = MakePart(ShapeOf(LaneType::kF16, PartLayout::kKey), 4);
  const std::vector<std::byte> packed = *PackGear(part.view(), GearPredictorSet::Values());
  const auto rows = GearDecode(std::span(packed).subspan(kPackedHeaderBytes), 2, 1 << 20);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  for (int row = 0; row < 32; ++row) {
    for (int channel = 0; channel < 64; ++channel) {
      EXPECT_EQ(std::memcmp(rows->data() + 2 * (row * 64 + channel),
                            part.bytes.data() + FloatOffset(part.shape, row, channel), 2),
                0);
    }
  }
}

TEST(GearPart, OnlyThePredictorsOfTheSetAreUsed) {
  const TestPart part = MakePart(ShapeOf(LaneType::kF16, PartLayout::kValue), 5);
  for (const GearPredictor only : {GearPredictor::kDeltaSeq, GearPredictor::kPairDelta}) {
    GearPredictorSet set{.predictors = {only}};
    const std::vector<std::byte> packed = *PackGear(part.view(), set);
    ASSERT_EQ(ReadPackedInfo(packed)->mode, PackMode::kGear);
    EXPECT_EQ(packed[kPackedHeaderBytes + 4], static_cast<std::byte>(only));  // of the low bytes
  }
}

TEST(GearPart, RleAloneWritesNoZstd) {
  TestPart part = MakePart(ShapeOf(LaneType::kF16, PartLayout::kValue), 6);
  std::fill(part.bytes.begin() + 1024, part.bytes.end(), std::byte{7});
  GearPredictorSet set = GearPredictorSet::Keys();
  set.zstd = false;
  const std::vector<std::byte> packed = *PackGear(part.view(), set);
  EXPECT_EQ(ReadPackedInfo(packed)->mode, PackMode::kGear);
  EXPECT_EQ(packed[kPackedHeaderBytes + 5], std::byte{0});  // codec of the low bytes
}

TEST(GearPart, NoiseStaysRawAndBlocksAreOurs) {
  TestPart noise = MakePart(ShapeOf(LaneType::kF16, PartLayout::kValue), 7);
  TestRandom random(8);
  for (std::byte& byte : noise.bytes) byte = static_cast<std::byte>(random.Bits());
  EXPECT_EQ(ReadPackedInfo(*PackGear(noise.view(), GearPredictorSet::Keys()))->mode,
            PackMode::kRaw);
  const TestPart blocks = MakePart({LaneType::kQ8, PartLayout::kKey, 1, 32, 64}, 9);
  EXPECT_EQ(*PackGear(blocks.view(), GearPredictorSet::Keys()), *Pack(blocks.view(), nullptr));
  EXPECT_FALSE(PackGear(blocks.view(), {}).ok());
}

TEST(GearPart, ChangedBytesAreRefused) {
  const TestPart part = MakePart(ShapeOf(LaneType::kF16, PartLayout::kKey), 10);
  const std::vector<std::byte> good = *PackGear(part.view(), GearPredictorSet::Keys());
  std::vector<std::byte> out(part.bytes.size());
  for (size_t at = 0; at < good.size(); at += 7) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x21};
    const Status status = Unpack(bad, nullptr, {out, 0});
    EXPECT_FALSE(status.ok() && out != part.bytes) << at;
  }
  for (size_t length = 0; length < good.size(); length += 13)
    EXPECT_FALSE(Unpack(std::span(good).first(length), nullptr, {out, 0}).ok()) << length;
}

}  // namespace gear_part_test
}  // namespace varve::store
