#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/kernel_testing.h"
#include "store/part_codec.h"
#include "store/rotation_testing.h"

namespace varve::store {
namespace rotated_rows_mode_test {

constexpr PartShape kShape = {LaneType::kF16, PartLayout::kKey, 2, 64, 64};

std::shared_ptr<const Dictionary> Build(const std::vector<KeyPage>& pages,
                                        std::shared_ptr<const Dictionary> base = nullptr) {
  auto dictionary = ExtendDictionary(std::move(base), ViewsOf(pages), {.min_count = 2});
  EXPECT_TRUE(dictionary.ok()) << dictionary.status().message();
  return *dictionary;
}

std::vector<std::byte> RoundTrip(const KeyPage& page, const Dictionary* dictionary) {
  const auto packed = Pack(page.view(), dictionary);
  EXPECT_TRUE(packed.ok());
  std::vector<std::byte> out(page.part.bytes.size());
  const Status status = Unpack(*packed, dictionary, {out, 0});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, page.part.bytes);
  return *packed;
}

PackMode ModeOf(const std::vector<std::byte>& packed) { return ReadPackedInfo(packed)->mode; }

TEST(RotatedRows, KnownTokensTakeAFewBitsAValue) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
    for (const RotationOrder order : {RotationOrder::kInterleaved, RotationOrder::kHalves}) {
      PartShape shape = kShape;
      shape.lane = lane;
      const auto pages = MakeKeyPages(shape, order, 6, 50);
      const auto dictionary = Build(pages);
      EXPECT_EQ(dictionary->num_rows(), 50u);
      for (const KeyPage& page : pages) {
        const std::vector<std::byte> packed = RoundTrip(page, dictionary.get());
        EXPECT_EQ(ModeOf(packed), PackMode::kRotatedRows);
        EXPECT_LT(packed.size() * 16, page.part.bytes.size() * 3);  // of 16 bits
      }
    }
  }
}

TEST(RotatedRows, EveryInstructionSetGivesTheSameBytes) {
  for (const int dim : {16, 48, 64, 80, 128}) {
    PartShape shape = kShape;
    shape.head_dim = dim;
    const auto pages = MakeKeyPages(shape, RotationOrder::kHalves, 4, 40);
    std::vector<std::byte> first;
    for (const Kernels* table : AvailableKernels()) {
      const ScopedKernels scope(*table);
      const auto dictionary = Build(pages);
      const std::vector<std::byte> packed = RoundTrip(pages[1], dictionary.get());
      EXPECT_EQ(ModeOf(packed), PackMode::kRotatedRows);
      if (first.empty()) first = packed;
      EXPECT_EQ(packed, first) << table->name << " " << dim;
    }
  }
}

TEST(RotatedRows, UnknownTokensAreLiterals) {
  const auto dictionary = Build(MakeKeyPages(kShape, RotationOrder::kHalves, 4, 30));
  // The same first 30 tokens and as many that are new.
  for (const int words : {32, 60, 90}) {
    const auto pages = MakeKeyPages(kShape, RotationOrder::kHalves, 3, words, 10000, 9);
    for (const KeyPage& page : pages) {
      EXPECT_EQ(ModeOf(RoundTrip(page, dictionary.get())), PackMode::kRotatedRows);
    }
  }
  const KeyPage other = {MakePart(kShape, 4), 640};
  EXPECT_EQ(ModeOf(RoundTrip(other, dictionary.get())), PackMode::kPairs);
}

TEST(RotatedRows, StrangeValuesInAKnownRowComeBack) {
  auto pages = MakeKeyPages(kShape, RotationOrder::kHalves, 4, 30);
  const auto dictionary = Build(pages);
  const uint16_t strange[] = {0x8000, 0, 0x7C00, 0xFC00, 0x7E01, 1, 0x83FF, 0x7BFF};
  for (int i = 0; i < 8; ++i) {
    std::memcpy(pages[0].part.bytes.data() + FloatOffset(kShape, 3 + i, 9 * i % 64), &strange[i],
                2);
  }
  EXPECT_EQ(ModeOf(RoundTrip(pages[0], dictionary.get())), PackMode::kRotatedRows);
}

TEST(RotatedRows, CopiesNeedNoMisses) {
  const auto pages = MakeKeyPages(kShape, RotationOrder::kHalves, 4, 30);
  const auto dictionary = Build(pages);
  // Of the first page only the rows that the dictionary took; noise in place of the others.
  KeyPage page = pages[0];
  const TestPart noise = MakePart(kShape, 8);
  std::vector<std::byte> row(2 * 2 * 64);
  int copies = 0;
  for (int r = 0; r < 64; ++r) {
    GatherRow(page.view(), r, row.data());
    bool taken = false;
    for (size_t i = 0; i < dictionary->num_rows(); ++i) {
      const auto known = dictionary->row(i);
      taken = taken || std::equal(known.begin(), known.end(), row.begin());
    }
    copies += taken ? 1 : 0;
    if (taken) continue;
    GatherRow(noise.view(), r, row.data());
    ScatterRow(kShape, row.data(), r, {page.part.bytes, 0});
  }
  ASSERT_GT(copies, 10);
  const std::vector<std::byte> packed = RoundTrip(page, dictionary.get());
  ASSERT_EQ(ModeOf(packed), PackMode::kRotatedRows);
  // The stream of misses is empty: two counts and the states.
  const size_t misses = kPackedHeaderBytes + 4 + 8 + 2 * static_cast<size_t>(copies);
  uint32_t miss_bytes = 0;
  std::memcpy(&miss_bytes, packed.data() + misses, 4);
  EXPECT_EQ(miss_bytes, 8u + 128u);
}

TEST(RotatedRows, NeedPositions) {
  const auto pages = MakeKeyPages(kShape, RotationOrder::kHalves, 4, 30);
  const auto dictionary = Build(pages);
  KeyPage unknown = pages[0];
  unknown.first_position = -1;
  EXPECT_EQ(ModeOf(RoundTrip(unknown, dictionary.get())), PackMode::kPairs);
  EXPECT_EQ(Build({unknown})->rotation(), nullptr);
}

TEST(RotatedRows, DictionariesAreExtendedAndReadAgain) {
  const auto base = Build(MakeKeyPages(kShape, RotationOrder::kInterleaved, 4, 30));
  const auto pages = MakeKeyPages(kShape, RotationOrder::kInterleaved, 8, 50, 10000, 3);
  const auto extended = Build(pages, base);
  EXPECT_EQ(extended->num_rows(), 50u);  // 30 of the base
  EXPECT_LT(RoundTrip(pages[0], extended.get()).size(), RoundTrip(pages[0], base.get()).size());
  const auto base_again = Dictionary::Parse(base->Serialize());
  ASSERT_TRUE(base_again.ok()) << base_again.status().message();
  const auto again = Dictionary::Parse(extended->Serialize(), *base_again);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ((*again)->hash(), extended->hash());
  EXPECT_EQ((*again)->bytes(), extended->bytes());
  EXPECT_EQ(RoundTrip(pages[0], again->get()), RoundTrip(pages[0], extended.get()));
  // A base that turns nothing does not fit.
  const KeyPage plain = {MakePart(kShape, 4), 0};
  ASSERT_EQ(Build({plain})->rotation(), nullptr);
  EXPECT_FALSE(Dictionary::Parse(extended->Serialize(), Build({plain})).ok());
}

TEST(RotatedRows, EveryChangedByteOfADictionaryIsRefused) {
  PartShape shape = kShape;
  shape.head_dim = 16;
  shape.lane = LaneType::kBF16;
  const std::vector<std::byte> good =
      Build(MakeKeyPages(shape, RotationOrder::kHalves, 2, 8))->Serialize();
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x41};
    EXPECT_FALSE(Dictionary::Parse(bad).ok()) << at;
    EXPECT_FALSE(Dictionary::Parse({good.data(), at}).ok()) << at;
  }
}

class RotatedErrors : public testing::Test {
 protected:
  const PartShape shape_ = {LaneType::kF16, PartLayout::kKey, 1, 16, 32};
  const std::vector<KeyPage> pages_ = MakeKeyPages(shape_, RotationOrder::kHalves, 12, 12);
  const std::shared_ptr<const Dictionary> dictionary_ = Build(pages_);
  const std::vector<std::byte> good_ = RoundTrip(pages_[1], dictionary_.get());

  void ExpectError(size_t at, int value, const std::string& text) {
    std::vector<std::byte> bad = good_;
    bad[at] = static_cast<std::byte>(value);
    std::vector<std::byte> out(shape_.Bytes());
    const Status status = Unpack(bad, dictionary_.get(), {out, 0});
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
};

TEST_F(RotatedErrors, FieldsAreChecked) {
  ASSERT_EQ(ModeOf(good_), PackMode::kRotatedRows);
  const size_t refs = kPackedHeaderBytes + 4 + 2;
  ExpectError(kPackedHeaderBytes, 0xEE, "content hash");  // first_position
  ExpectError(refs + 1, 0x7F, "dictionary row");
  ExpectError(refs + 1, 0xFF, "dictionary row");
  const size_t misses = refs + 2 * 16;  // all rows are known
  ExpectError(misses + 3, 0x7F, "misses needs");
  ExpectError(0, 24, "mode 24");
  ExpectError(0, 18, "no rows");  // another mode
}

TEST_F(RotatedErrors, EveryChangedOrMissingByteIsRefused) {
  for (const Kernels* table : AvailableKernels()) {
    const ScopedKernels scope(*table);
    std::vector<std::byte> out(shape_.Bytes());
    for (size_t at = 0; at < good_.size(); ++at) {
      std::vector<std::byte> bad = good_;
      bad[at] ^= static_cast<std::byte>(1 << at % 8);
      EXPECT_FALSE(Unpack(bad, dictionary_.get(), {out, 0}).ok()) << at;
      const std::vector<std::byte> cut(good_.begin(), good_.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_FALSE(Unpack(cut, dictionary_.get(), {out, 0}).ok()) << at;
    }
  }
}

TEST_F(RotatedErrors, ADictionaryWithoutRowsIsRefused) {
  std::vector<std::byte> bad = good_;
  std::vector<std::byte> out(shape_.Bytes());
  std::fill_n(bad.begin() + 24, 8, std::byte{0});
  const Status status = Unpack(bad, nullptr, {out, 0});
  EXPECT_NE(status.message().find("without a dictionary"), std::string::npos) << status.message();
}

}  // namespace rotated_rows_mode_test
}  // namespace varve::store
