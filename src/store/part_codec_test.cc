// Parts unpack to what was packed, on every instruction set; changed bytes are refused.

#include "store/part_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "kernels/kernel_testing.h"
#include "store/part_testing.h"

namespace varve::store {
namespace part_codec_test {

std::shared_ptr<const Dictionary> MakeDictionary(const PartShape& shape) {
  const TestPart a = MakePart(shape, 100), b = MakePart(shape, 101);
  const PartView samples[] = {a.view(), b.view()};
  auto dictionary = BuildDictionary(samples);
  EXPECT_TRUE(dictionary.ok()) << dictionary.status().message();
  return *dictionary;
}

// Packs, unpacks between guard bytes and compares. Returns the packed bytes.
std::vector<std::byte> RoundTrip(const TestPart& part, const Dictionary* dictionary) {
  const auto packed = Pack(part.view(), dictionary);
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  const auto info = ReadPackedInfo(*packed);
  EXPECT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->shape, part.shape);
  EXPECT_EQ(*UnpackedSize(*packed), part.bytes.size());
  EXPECT_LE(packed->size(), part.bytes.size() + kPackedHeaderBytes);
  GuardedBuffer<std::byte> out(part.bytes.size());
  const Status status = Unpack(*packed, dictionary, {{out.data(), out.size()}, 0});
  EXPECT_TRUE(status.ok()) << status.message() << ", " << ShapeText(part.shape);
  EXPECT_TRUE(out.ZonesIntact()) << ShapeText(part.shape);
  EXPECT_TRUE(std::equal(part.bytes.begin(), part.bytes.end(), out.data()))
      << ShapeText(part.shape) << ", mode " << PackModeName(info->mode);
  return *packed;
}

PackMode ModeOf(const std::vector<std::byte>& packed) { return ReadPackedInfo(packed)->mode; }

class PartCodec : public EveryTable {
 protected:
  ScopedKernels scope_{*GetParam()};
};

TEST_P(PartCodec, EveryShapeComesBackBitForBit) {
  for (const PartShape& shape : TestShapes()) {
    ASSERT_TRUE(shape.Check().ok()) << ShapeText(shape);
    const TestPart part = MakePart(shape, 1);
    const auto dictionary = MakeDictionary(shape);
    RoundTrip(part, nullptr);
    const std::vector<std::byte> packed = RoundTrip(part, dictionary.get());
    const TestPart noise = MakeNoise(shape, 2);
    RoundTrip(noise, nullptr);
    RoundTrip(noise, dictionary.get());
  }
}

TEST_P(PartCodec, EveryNumberOfRowsComesBack) {
  for (int rows = 1; rows <= 128; ++rows) {
    RoundTrip(MakePart({LaneType::kF16, PartLayout::kValue, 1, rows, 32}, 3), nullptr);
    RoundTrip(MakePart({LaneType::kBF16, PartLayout::kRows, 2, rows, 10}, 3), nullptr);
  }
}

TEST_P(PartCodec, StrangeBitsComeBack) {
  for (const LaneType lane : {LaneType::kF32, LaneType::kF16, LaneType::kBF16}) {
    for (const PartLayout layout : {PartLayout::kKey, PartLayout::kValue}) {
      const PartShape shape = {lane, layout, 2, 32, 64};
      TestPart part = MakePart(shape, 4);
      const auto dictionary = MakeDictionary(shape);
      // NaN with payload, infinities, zeros of both signs, denormals, among ordinary values.
      const std::vector<uint32_t> f16 = {0x7C01, 0xFE12, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x83FF};
      const std::vector<uint32_t> f32 = {0x7F800001, 0xFFC01234, 0x7F800000, 0xFF800000,
                                         0,          0x80000000, 1,          0x807FFFFF};
      const size_t width = lane == LaneType::kF32 ? 4 : 2;
      for (size_t i = 0; i < part.bytes.size() / width; i += 5) {
        uint32_t bits = lane == LaneType::kF16 ? f16[i % 8] : f32[i % 8];
        if (lane == LaneType::kBF16) bits >>= 16;
        std::memcpy(&part.bytes[i * width], &bits, width);
      }
      RoundTrip(part, nullptr);
      RoundTrip(part, dictionary.get());
    }
  }
}

TEST_P(PartCodec, ConstantDataNearlyVanishes) {
  for (const LaneType lane : {LaneType::kF32, LaneType::kF16, LaneType::kBF16}) {
    TestPart part = MakePart({lane, PartLayout::kKey, 2, 64, 64}, 1);
    std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0});
    EXPECT_LT(RoundTrip(part, nullptr).size(), 100u);
    std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0x3C});
    EXPECT_LT(RoundTrip(part, nullptr).size(), 100u);
  }
}

TEST_P(PartCodec, NoiseIsStoredAsItIs) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16, LaneType::kF32}) {
    const TestPart noise = MakeNoise({lane, PartLayout::kValue, 2, 64, 64}, 9);
    const std::vector<std::byte> packed = RoundTrip(noise, nullptr);
    EXPECT_EQ(ModeOf(packed), PackMode::kRaw);
    EXPECT_EQ(packed.size(), noise.bytes.size() + kPackedHeaderBytes);
  }
}

TEST_P(PartCodec, StripsMayLieApart) {
  const PartShape shape = {LaneType::kF16, PartLayout::kKey, 3, 16, 64};
  const TestPart part = MakePart(shape, 1);
  const size_t strip = shape.StripBytes(), stride = strip + 96;
  std::vector<std::byte> apart(3 * stride, std::byte{0x55});
  for (size_t head = 0; head < 3; ++head) {
    std::copy_n(&part.bytes[head * strip], strip, &apart[head * stride]);
  }
  const auto dictionary = MakeDictionary(shape);
  const auto packed = Pack({shape, apart.data(), stride}, dictionary.get());
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(*packed, *Pack(part.view(), dictionary.get()));
  std::vector<std::byte> out(2 * stride + strip, std::byte{0x55});  // nothing behind the last
  ASSERT_TRUE(Unpack(*packed, dictionary.get(), {out, stride}).ok());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), apart.begin()));
}

INSTANTIATE_TEST_SUITE_P(All, PartCodec, testing::ValuesIn(AllTables()), TableName);

TEST(PartCodecSize, GaussianRowsGetNearTheEntropy) {
  // An ideal coder that knows each channel needs about 13.5 bits for f16, 10.5 for bf16.
  const PartShape f16 = {LaneType::kF16, PartLayout::kValue, 2, 64, 128};
  const PartShape bf16 = {LaneType::kBF16, PartLayout::kKey, 2, 64, 128};
  const auto bits = [](const PartShape& shape) {
    const auto dictionary = MakeDictionary(shape);
    const TestPart part = MakePart(shape, 1);
    const size_t bytes = Pack(part.view(), dictionary.get())->size();
    return 16.0 * static_cast<double>(bytes) / static_cast<double>(part.bytes.size());
  };
  EXPECT_NEAR(bits(f16), 13.55, 0.25);
  EXPECT_NEAR(bits(bf16), 10.55, 0.25);
}

TEST(PartCodecSize, ChannelsThatDriftedGetCodesOfTheirOwn) {
  const PartShape shape = {LaneType::kF16, PartLayout::kKey, 2, 64, 64};
  const auto dictionary = MakeDictionary(shape);
  const TestPart part = MakePart(shape, 1);
  TestPart drifted = part;  // every eighth channel of both heads, times 8
  for (int head = 0; head < 2; ++head) {
    for (int d = 0; d < 64; d += 8) {
      for (int row = 0; row < 64; ++row) {
        std::byte* at = drifted.bytes.data() + static_cast<size_t>(head) * shape.StripBytes() +
                        FloatOffset(shape, row, d);
        uint16_t word;
        std::memcpy(&word, at, 2);
        StoreLane(LaneType::kF16, 8.0f * F16ToF32(word), at);
      }
    }
  }
  const std::vector<std::byte> packed = RoundTrip(drifted, dictionary.get());
  ASSERT_EQ(packed[kPackedHeaderBytes], std::byte{4 + 2});
  const size_t first_change = kPackedHeaderBytes + 3;
  const auto expect = [&](size_t at, int value, const std::string& text) {
    std::vector<std::byte> bad = packed;
    bad[at] = static_cast<std::byte>(value);
    std::vector<std::byte> out(shape.Bytes());
    const Status status = Unpack(bad, dictionary.get(), {out, 0});
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  expect(kPackedHeaderBytes + 2, 255, "changed units needs");
  expect(first_change + 1, 255, "changed unit 65");
  expect(first_change + 4, 0, "after");  // the second is not behind the first
  expect(first_change + 2, 48, "base 32 > 31");
  expect(first_change + 3, 9, "table 9 >= 9");
  // 16 changes of 4 bytes, and what is left of noise.
  EXPECT_LT(packed.size(), RoundTrip(part, dictionary.get()).size() + 16 * 4 + 100);
}

class PackedErrors : public testing::Test {
 protected:
  const PartShape shape_ = {LaneType::kF16, PartLayout::kValue, 2, 16, 32};
  const TestPart part_ = MakePart(shape_, 1);
  const std::shared_ptr<const Dictionary> dictionary_ = MakeDictionary(shape_);
  std::vector<std::byte> out_ = std::vector<std::byte>(shape_.Bytes());

  Status TryUnpack(const std::vector<std::byte>& packed) {
    // A copy of the exact size: AddressSanitizer sees a read past its end.
    const std::vector<std::byte> copy(packed.begin(), packed.end());
    return Unpack(copy, dictionary_.get(), {out_, 0});
  }
  void ExpectError(const std::vector<std::byte>& packed, const std::string& text) {
    const Status status = TryUnpack(packed);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
  // One part per mode.
  std::vector<std::vector<std::byte>> AllModes() {
    std::vector<std::vector<std::byte>> all;
    all.push_back(*Pack(part_.view(), dictionary_.get()));
    all.push_back(*Pack(part_.view(), nullptr));
    all.push_back(*Pack(part_.view(), nullptr, PackGoal::kQuick));
    all.push_back(*Pack(MakeNoise(shape_, 5).view(), nullptr));
    TestPart rows = part_;
    std::vector<std::byte> row(128);
    GatherRow(part_.view(), 0, row.data());
    for (int r = 1; r < 9; ++r) ScatterRow(shape_, row.data(), r, {rows.bytes, 0});
    all.push_back(*Pack(rows.view(), dictionary_.get()));
    all.push_back(*Pack(rows.view(), dictionary_.get(), PackGoal::kQuick));
    EXPECT_EQ(ModeOf(*Pack(rows.view(), nullptr)), PackMode::kRowRefs);
    all.push_back(*Pack(rows.view(), nullptr));
    std::fill(rows.bytes.begin(), rows.bytes.end(), std::byte{1});
    all.push_back(*Pack(rows.view(), nullptr));
    const TestPart blocks = MakePart({LaneType::kQ8, PartLayout::kValue, 1, 16, 32}, 1);
    all.push_back(*Pack(blocks.view(), nullptr));
    return all;
  }
};

TEST_F(PackedErrors, EveryHeaderFieldIsChecked) {
  const std::vector<std::byte> good = *Pack(part_.view(), dictionary_.get());
  const auto with = [&](size_t at, int value) {
    std::vector<std::byte> bad = good;
    bad[at] = static_cast<std::byte>(value);
    return bad;
  };
  ExpectError(with(0, 15), "mode 15");
  ExpectError(with(0, 21), "rows do not turn");
  ExpectError(with(0, 23), "rows do not turn");
  ExpectError(with(0, 24), "mode 24");
  ExpectError(with(1, 5), "lane type 5");
  ExpectError(with(2, 3), "layout 3");
  ExpectError(with(3, 1), "reserved");
  ExpectError(with(5, 255), "num_heads");
  ExpectError(with(6, 0), "num_rows 0");
  ExpectError(with(7, 1), "num_rows");
  ExpectError(with(8, 8), "head_dim 8 is not a multiple of 16");
  ExpectError(with(9, 4), "head_dim");
  ExpectError(with(10, 1), "reserved");
  ExpectError(with(12, 1), "payload_bytes");
  ExpectError(with(16, 1), "content hash");
  ExpectError(with(24, 1), "needs dictionary");
}

TEST_F(PackedErrors, EveryLengthButTheRightOneIsRefused) {
  for (const std::vector<std::byte>& good : AllModes()) {
    for (size_t length = 0; length < good.size(); ++length) {
      const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_FALSE(TryUnpack(cut).ok()) << length;
      EXPECT_FALSE(UnpackedSize(cut).ok()) << length;
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(TryUnpack(longer).ok());
  }
}

TEST_F(PackedErrors, EveryChangedByteIsRefusedUnlessItChangesNothing) {
  for (const Kernels* table : AllTables()) {
    const ScopedKernels scope(*table);
    for (const std::vector<std::byte>& good : AllModes()) {
      ASSERT_TRUE(TryUnpack(good).ok());
      const std::vector<std::byte> original = out_;
      int accepted = 0;
      for (size_t at = 0; at < good.size(); ++at) {
        for (const std::byte flip : {static_cast<std::byte>(1 << at % 8), std::byte{0xFF}}) {
          std::vector<std::byte> bad = good;
          bad[at] ^= flip;
          if (!TryUnpack(bad).ok()) continue;
          // A reference to another copy of the same row, a bit that zstd does not look at.
          ++accepted;
          EXPECT_EQ(out_, original) << at;
        }
      }
      EXPECT_LE(accepted, 8);
    }
  }
}

TEST_F(PackedErrors, CountsThatCannotBeAreRefused) {
  const std::vector<std::byte> good = *Pack(part_.view(), dictionary_.get());
  ASSERT_EQ(ModeOf(good), PackMode::kPairs);
  std::vector<std::byte> bad = good;
  std::fill_n(bad.begin() + kPackedHeaderBytes + 1, 4, std::byte{0xFF});
  ExpectError(bad, "words needs 8589934590 bytes");
  bad = good;
  std::fill_n(bad.begin() + kPackedHeaderBytes + 5, 4, std::byte{0xFF});
  ExpectError(bad, "escapes needs 8589934590 bytes");
  bad = good;
  bad[kPackedHeaderBytes] = std::byte{3};
  ExpectError(bad, "has_units 3 is not");
  bad[kPackedHeaderBytes] = std::byte{7};
  ExpectError(bad, "has_units 7 is not");
}

TEST_F(PackedErrors, AnotherDictionaryIsRefused) {
  const std::vector<std::byte> packed = *Pack(part_.view(), dictionary_.get());
  const TestPart other = MakePart(shape_, 500);
  const PartView samples[] = {other.view()};
  const auto another = BuildDictionary(samples);
  ASSERT_TRUE(another.ok());
  Status status = Unpack(packed, another->get(), {out_, 0});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("needs dictionary"), std::string::npos) << status.message();
  status = Unpack(packed, nullptr, {out_, 0});
  EXPECT_NE(status.message().find("none given"), std::string::npos) << status.message();
  const auto for_keys = MakeDictionary({LaneType::kF16, PartLayout::kKey, 2, 16, 32});
  EXPECT_EQ(Pack(part_.view(), for_keys.get()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PackedErrors, BufferThatIsTooSmallIsRefused) {
  const std::vector<std::byte> packed = *Pack(part_.view(), nullptr);
  const std::span<std::byte> small(out_.data(), out_.size() - 1);
  EXPECT_EQ(Unpack(packed, nullptr, {small, 0}).code(), StatusCode::kInvalidArgument);
  const size_t strip = shape_.StripBytes();
  EXPECT_EQ(Unpack(packed, nullptr, {out_, strip + 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Unpack(packed, nullptr, {out_, strip - 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Unpack(packed, nullptr, {out_, SIZE_MAX}).code(), StatusCode::kInvalidArgument);
}

TEST_F(PackedErrors, VerifyingIsACallersChoice) {
  std::vector<std::byte> packed = *Pack(part_.view(), dictionary_.get());
  packed[16] ^= std::byte{1};  // the hash alone
  EXPECT_FALSE(TryUnpack(packed).ok());
  ASSERT_TRUE(Unpack(packed, dictionary_.get(), {out_, 0}, {.verify = false}).ok());
  EXPECT_EQ(out_, part_.bytes);
}

TEST_F(PackedErrors, ShapesOutOfRangeAreNotPacked) {
  PartShape shape = shape_;
  shape.num_rows = 129;
  EXPECT_NE(Pack({shape, part_.bytes.data(), 0}, nullptr).status().message().find("129"),
            std::string::npos);
  shape = shape_;
  shape.layout = PartLayout::kKey;
  shape.num_rows = 17;
  EXPECT_NE(Pack({shape, part_.bytes.data(), 0}, nullptr).status().message().find("num_rows 17"),
            std::string::npos);
}

}  // namespace part_codec_test
}  // namespace varve::store
