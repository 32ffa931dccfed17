// The quick modes: parts come back bit for bit on every instruction set, changed bytes are refused,
// and the bytes stay near those of the small modes.

#include "store/plane_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "store/part_codec.h"
#include "store/rotation_testing.h"

namespace varve::store {
namespace plane_coder_test {

std::shared_ptr<const Dictionary> Build(std::span<const PartView> samples) {
  DictionaryOptions options;
  options.min_count = 2;
  auto dictionary = BuildDictionary(samples, options);
  EXPECT_TRUE(dictionary.ok()) << dictionary.status().message();
  return *dictionary;
}

std::vector<std::byte> RoundTrip(const PartView& part, const Dictionary* dictionary) {
  const auto packed = Pack(part, dictionary, PackGoal::kQuick);
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  GuardedBuffer<std::byte> out(part.shape.Bytes());
  const Status status = Unpack(*packed, dictionary, {{out.data(), out.size()}, 0});
  EXPECT_TRUE(status.ok()) << status.message() << ", " << ShapeText(part.shape);
  EXPECT_TRUE(out.ZonesIntact()) << ShapeText(part.shape);
  EXPECT_TRUE(std::equal(part.data, part.data + out.size(), out.data()))
      << ShapeText(part.shape) << ", mode " << PackModeName(ReadPackedInfo(*packed)->mode);
  return *packed;
}

PackMode ModeOf(const std::vector<std::byte>& packed) { return ReadPackedInfo(packed)->mode; }

class QuickParts : public EveryTable {
 protected:
  ScopedKernels scope_{*GetParam()};
};

TEST_P(QuickParts, EveryShapeComesBackBitForBit) {
  for (const PartShape& shape : TestShapes()) {
    const TestPart part = MakePart(shape, 1), noise = MakeNoise(shape, 2);
    const PartView samples[] = {part.view(), noise.view()};
    const auto dictionary = Build(samples);
    for (const TestPart* each : {&part, &noise}) {
      RoundTrip(each->view(), nullptr);
      RoundTrip(each->view(), dictionary.get());
    }
  }
}

TEST_P(QuickParts, StrangeBitsComeBack) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
    for (const PartLayout layout : {PartLayout::kKey, PartLayout::kValue}) {
      TestPart part = MakePart({lane, layout, 2, 32, 64}, 4);
      // NaN with payload, infinities, zeros of both signs, denormals, among ordinary values.
      const uint16_t odd[] = {0x7C01, 0xFE12, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x83FF, 0x7F80, 0xFFFF};
      for (size_t i = 0; i < part.bytes.size() / 2; i += 23)
        std::memcpy(&part.bytes[2 * i], &odd[i % std::size(odd)], 2);
      EXPECT_EQ(ModeOf(RoundTrip(part.view(), nullptr)), PackMode::kPlanes);
    }
  }
}

TEST_P(QuickParts, BasesThatLieFarApartTakeAByteEach) {
  TestPart part = MakePart({LaneType::kBF16, PartLayout::kKey, 1, 32, 64}, 5);
  for (size_t channel = 0; channel < 64; ++channel) {
    for (size_t row = 0; row < 32; ++row) {
      std::byte* at = part.bytes.data() +
                      FloatOffset(part.shape, static_cast<int>(row), static_cast<int>(channel));
      const float scale = std::ldexp(1.0f, static_cast<int>(channel) - 32);
      StoreLane(LaneType::kBF16, scale * (1.0f + static_cast<float>(row)), at);
    }
  }
  const std::vector<std::byte> packed = RoundTrip(part.view(), nullptr);
  ASSERT_EQ(ModeOf(packed), PackMode::kPlanes);
  EXPECT_EQ(packed[kPackedHeaderBytes], std::byte{0xFF});
}

INSTANTIATE_TEST_SUITE_P(Isas, QuickParts, testing::ValuesIn(AvailableKernels()), TableName);

TEST(PlaneCoder, TakesFewMoreBytesThanPairs) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
    for (const PartLayout layout : {PartLayout::kKey, PartLayout::kValue}) {
      const TestPart part = MakePart({lane, layout, 1, 64, 128}, 6);
      const PartView samples[] = {part.view()};
      const auto dictionary = Build(samples);
      const size_t small = Pack(part.view(), dictionary.get())->size();
      const std::vector<std::byte> quick = RoundTrip(part.view(), dictionary.get());
      EXPECT_EQ(ModeOf(quick), PackMode::kPlanes);
      EXPECT_EQ(ReadPackedInfo(quick)->dictionary_hash, 0u);
      EXPECT_LT(quick.size(), small + small / 25);
      EXPECT_GT(quick.size(), small - small / 50);  // no form beats the entropy
    }
  }
}

TEST(PlaneCoder, ChoosesTheBaseThatTakesTheFewestBits) {
  FloatPlane plane;
  plane.layout = PairLayout::kChunks;
  plane.num_heads = 1;
  plane.num_rows = 4;
  plane.dim = plane.chunk = 16;
  SplitElements split;
  split.exponents.assign(64, 12);
  split.exponents[0] = 13;   // channel 0: 13, 12, 12, 12: 13 is base + 1, 12 the base
  split.exponents[1] = 10;   // channel 1: 10, 12, 12, 12
  split.exponents[18] = 14;  // channel 2: 12, 14, 14, 14
  split.exponents[34] = 14;
  split.exponents[50] = 14;
  const std::vector<uint8_t> bases = FitBases(plane, split);
  EXPECT_TRUE(bases[0] == 13 || bases[0] == 12);
  EXPECT_EQ(bases[3], 12);
  EXPECT_EQ(bases[2], 14);
}

// --- rows ---

TEST(PlaneCoder, RowsOfADictionaryStayReferences) {
  const PartShape shape = {LaneType::kF16, PartLayout::kValue, 1, 32, 128};
  std::vector<TestPart> pages;
  const TestPart tokens = MakePart(shape, 9);
  TestRandom random(3);
  std::vector<std::byte> row(256);
  for (int p = 0; p < 6; ++p) {
    TestPart& page = pages.emplace_back(MakePart(shape, uint64_t{20} + static_cast<uint64_t>(p)));
    for (int r = 0; r < 32; r += p % 2 + 1) {
      GatherRow(tokens.view(), static_cast<int>(random.Bits() % 32), row.data());
      ScatterRow(shape, row.data(), r, {page.bytes, 0});
    }
  }
  std::vector<PartView> views;
  for (const TestPart& page : pages) views.push_back(page.view());
  const auto dictionary = Build(views);
  for (const PartView& view : views) {
    const std::vector<std::byte> packed = RoundTrip(view, dictionary.get());
    EXPECT_EQ(ModeOf(packed), PackMode::kRowRefs);
    EXPECT_LT(packed.size(), Pack(view, dictionary.get())->size() * 105 / 100);
  }
}

class QuickRotated : public testing::Test {
 protected:
  const PartShape shape_ = {LaneType::kF16, PartLayout::kKey, 1, 32, 64};
  std::vector<KeyPage> pages_ = MakeKeyPages(shape_, RotationOrder::kHalves, 12, 40);
  const std::shared_ptr<const Dictionary> dictionary_ = Build(ViewsOf(pages_));
};

TEST_F(QuickRotated, RowsThatTurnComeBackOnEveryTable) {
  // Some rows that no dictionary knows.
  const TestPart noise = MakePart(shape_, 8);
  std::vector<std::byte> row(2 * 64);
  for (const int r : {0, 7, 31}) {
    GatherRow(noise.view(), r, row.data());
    ScatterRow(shape_, row.data(), r, {pages_[0].part.bytes, 0});
  }
  for (const Kernels* table : AvailableKernels()) {
    const ScopedKernels scope(*table);
    for (const KeyPage& page : pages_) {
      const std::vector<std::byte> packed = RoundTrip(page.view(), dictionary_.get());
      EXPECT_EQ(ModeOf(packed), PackMode::kRotatedPlanes);
      EXPECT_LT(packed.size(), Pack(page.view(), dictionary_.get())->size() * 105 / 100);
    }
  }
}

// Every bit of packed bytes counts.
void ExpectEveryChangeRefused(const std::vector<std::byte>& good, const Dictionary* dictionary) {
  std::vector<std::byte> out(ReadPackedInfo(good)->unpacked_bytes);
  for (const Kernels* table : AvailableKernels()) {
    const ScopedKernels scope(*table);
    for (size_t at = 0; at < good.size(); ++at) {
      std::vector<std::byte> bad = good;
      bad[at] ^= static_cast<std::byte>(1 << at % 8);
      EXPECT_FALSE(Unpack(bad, dictionary, {out, 0}).ok()) << at;
      const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_FALSE(Unpack(cut, dictionary, {out, 0}).ok()) << at;
    }
  }
}

TEST_F(QuickRotated, EveryChangedOrMissingByteIsRefused) {
  ExpectEveryChangeRefused(RoundTrip(pages_[1].view(), dictionary_.get()), dictionary_.get());
}

TEST(PlaneCoder, EveryChangedOrMissingByteIsRefused) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
    const TestPart part = MakePart({lane, PartLayout::kValue, 1, 32, 32}, 7);
    const std::vector<std::byte> good = RoundTrip(part.view(), nullptr);
    ASSERT_EQ(ModeOf(good), PackMode::kPlanes);
    ExpectEveryChangeRefused(good, nullptr);
  }
}

TEST(PlaneCoder, FieldsAreChecked) {
  const TestPart part = MakePart({LaneType::kF16, PartLayout::kValue, 1, 32, 32}, 7);
  const std::vector<std::byte> good = RoundTrip(part.view(), nullptr);
  std::vector<std::byte> out(part.bytes.size());
  const auto expect = [&](size_t at, int value, const std::string& text) {
    std::vector<std::byte> bad = good;
    bad[at] = static_cast<std::byte>(value);
    const Status status = Unpack(bad, nullptr, {out, 0});
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  const size_t bases = kPackedHeaderBytes;
  expect(bases, 60, "base");
  const size_t levels = bases + 1 + 16;
  expect(levels + 3, 0x7F, "level needs");
  expect(levels + 1, 0x02, "blocks needs");
  expect(levels, static_cast<int>(good[levels]) ^ 1, "do not decode");
  expect(1, static_cast<int>(LaneType::kQ8), "mode planes with blocks");
}

}  // namespace plane_coder_test
}  // namespace varve::store
