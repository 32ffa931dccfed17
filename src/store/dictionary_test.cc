#include "store/dictionary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "store/part_codec.h"
#include "store/part_testing.h"

namespace varve::store {
namespace dictionary_test {

constexpr PartShape kShape = {LaneType::kF16, PartLayout::kValue, 2, 64, 32};
constexpr size_t kRowBytes = 128;

// Pages whose rows are drawn from `words` different ones, as V of the first layer.
std::vector<TestPart> RepeatingPages(int pages, int words, uint64_t seed) {
  PartShape all_rows = kShape;
  all_rows.num_rows = words;
  const TestPart source = MakePart(all_rows, 77);
  TestRandom random(seed);
  std::vector<TestPart> parts;
  std::vector<std::byte> row(kRowBytes);
  for (int p = 0; p < pages; ++p) {
    TestPart part = {kShape, std::vector<std::byte>(kShape.Bytes())};
    for (int r = 0; r < kShape.num_rows; ++r) {
      GatherRow(source.view(), static_cast<int>(random.Bits() % static_cast<uint64_t>(words)),
                row.data());
      ScatterRow(kShape, row.data(), r, {part.bytes, 0});
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::shared_ptr<const Dictionary> Build(const std::vector<TestPart>& parts,
                                        const DictionaryOptions& options = {}) {
  std::vector<PartView> views;
  for (const TestPart& part : parts) views.push_back(part.view());
  auto dictionary = BuildDictionary(views, options);
  EXPECT_TRUE(dictionary.ok()) << dictionary.status().message();
  return *dictionary;
}

TEST(Dictionary, RowsThatRepeatAreStoredOnce) {
  const std::vector<TestPart> pages = RepeatingPages(8, 50, 1);
  const auto dictionary = Build(pages);
  EXPECT_EQ(dictionary->num_rows(), 50u);
  for (const TestPart& page : pages) {
    const auto packed = Pack(page.view(), dictionary.get());
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(ReadPackedInfo(*packed)->mode, PackMode::kRowRefs);
    EXPECT_LT(packed->size(), 200u);  // 64 references and a header
    std::vector<std::byte> out(page.bytes.size());
    ASSERT_TRUE(Unpack(*packed, dictionary.get(), {out, 0}).ok());
    EXPECT_EQ(out, page.bytes);
  }
}

TEST(Dictionary, RowsThatItDoesNotKnowAreLiterals) {
  const std::vector<TestPart> pages = RepeatingPages(2, 50, 1);
  const auto dictionary = Build({pages[0]});
  for (const int strangers : {0, 1, 2, 3, 7, 30}) {
    TestPart page = pages[1];
    const TestPart other = MakePart(kShape, 9);
    std::vector<std::byte> row(kRowBytes);
    for (int r = 0; r < strangers; ++r) {
      GatherRow(other.view(), r, row.data());
      ScatterRow(kShape, row.data(), 2 * r, {page.bytes, 0});
    }
    const auto packed = Pack(page.view(), dictionary.get());
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(ReadPackedInfo(*packed)->mode, PackMode::kRowRefs) << strangers;
    std::vector<std::byte> out(page.bytes.size());
    const Status status = Unpack(*packed, dictionary.get(), {out, 0});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out, page.bytes) << strangers;
  }
}

TEST(Dictionary, ExtendedOneHasTheRowsOfItsBaseAndNewOnes) {
  const std::vector<TestPart> pages = RepeatingPages(4, 60, 1);
  std::shared_ptr<const Dictionary> dictionary = Build({pages[0]});
  const size_t first_rows = dictionary->num_rows();
  std::vector<std::vector<std::byte>> packed, saved;
  std::vector<std::shared_ptr<const Dictionary>> chain;
  for (const TestPart& page : pages) {
    const PartView samples[] = {page.view()};
    auto extended = ExtendDictionary(dictionary, samples);
    ASSERT_TRUE(extended.ok()) << extended.status().message();
    EXPECT_EQ((*extended)->base(), dictionary);
    EXPECT_NE((*extended)->hash(), dictionary->hash());
    dictionary = *extended;
    packed.push_back(*Pack(page.view(), dictionary.get()));
    EXPECT_LT(packed.back().size(), 200u);  // nothing but references
    saved.push_back(dictionary->Serialize());
    chain.push_back(dictionary);
  }
  EXPECT_GT(dictionary->num_rows(), first_rows);
  EXPECT_LE(dictionary->num_rows(), 60u);
  EXPECT_LT(dictionary->bytes(), 60 * kRowBytes);  // its own rows alone
  for (size_t i = 0; i < dictionary->num_rows(); ++i) {
    EXPECT_EQ(dictionary->FindRow(dictionary->row(i)), static_cast<int>(i));
  }
  // All of them come back from their bytes, in order, and unpack what was packed.
  std::shared_ptr<const Dictionary> base = chain[0]->base();
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(*Dictionary::ParseBaseHash(saved[i]), base->hash());
    EXPECT_FALSE(Dictionary::Parse(saved[i]).ok());
    const auto again = Dictionary::Parse(saved[i], base);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ((*again)->hash(), chain[i]->hash());
    std::vector<std::byte> out(pages[i].bytes.size());
    const Status status = Unpack(packed[i], again->get(), {out, 0});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out, pages[i].bytes);
    base = *again;
  }
}

TEST(Dictionary, ExtendingFitsTheCodesToNewPages) {
  const TestPart small = MakePart(kShape, 1);
  TestPart large = small;  // times 2^6
  for (size_t i = 0; i < large.bytes.size(); i += 2) {
    uint16_t word;
    std::memcpy(&word, &large.bytes[i], 2);
    StoreLane(LaneType::kF16, 64.0f * F16ToF32(word), &large.bytes[i]);
  }
  const auto dictionary = Build({small});
  const PartView samples[] = {large.view()};
  const auto extended = ExtendDictionary(dictionary, samples);
  ASSERT_TRUE(extended.ok());
  EXPECT_LT(Pack(large.view(), extended->get())->size() + 200,
            Pack(large.view(), dictionary.get())->size());
  const TestPart other = MakePart({LaneType::kF16, PartLayout::kKey, 2, 64, 32}, 1);
  const PartView wrong[] = {other.view()};
  EXPECT_EQ(ExtendDictionary(dictionary, wrong).status().code(), StatusCode::kInvalidArgument);
}

TEST(Dictionary, RowsThatDoNotRepeatAreNotKept) {
  EXPECT_EQ(Build({MakePart(kShape, 1), MakePart(kShape, 2)})->num_rows(), 0u);
}

TEST(Dictionary, CapKeepsTheMostFrequentRows) {
  std::vector<TestPart> pages = RepeatingPages(1, 60, 1);
  std::vector<std::byte> row(kRowBytes);
  GatherRow(pages[0].view(), 50, row.data());
  for (int r = 0; r < 20; ++r) ScatterRow(kShape, row.data(), r, {pages[0].bytes, 0});
  const auto dictionary = Build(pages, {.max_row_bytes = kRowBytes});
  ASSERT_EQ(dictionary->num_rows(), 1u);
  EXPECT_EQ(dictionary->FindRow(row), 0);
}

TEST(Dictionary, ComesBackFromItsBytes) {
  for (const PartShape& shape : TestShapes()) {
    const TestPart a = MakePart(shape, 1);
    std::vector<TestPart> parts = {a, a};
    const auto dictionary = Build(parts);
    const std::vector<std::byte> bytes = dictionary->Serialize();
    const auto again = Dictionary::Parse(bytes);
    ASSERT_TRUE(again.ok()) << again.status().message() << ShapeText(shape);
    EXPECT_EQ((*again)->hash(), dictionary->hash());
    EXPECT_EQ((*again)->Serialize(), bytes);
    EXPECT_EQ((*again)->num_rows(), dictionary->num_rows());
    const PairLayout layout = PlaneOf(shape).layout;
    EXPECT_EQ((*again)->units(layout).table, dictionary->units(layout).table);
    EXPECT_EQ((*again)->units(layout).base, dictionary->units(layout).base);
    EXPECT_EQ(*Pack(a.view(), again->get()), *Pack(a.view(), dictionary.get()));
  }
}

TEST(Dictionary, SamplesMayHaveDifferentNumbersOfRows) {
  PartShape shorter = kShape;
  shorter.num_rows = 16;
  const auto dictionary = Build({MakePart(kShape, 1), MakePart(shorter, 2)});
  EXPECT_TRUE(dictionary->Serves(kShape));
  EXPECT_TRUE(dictionary->Serves(shorter));
  const TestPart blocks = MakePart({LaneType::kQ8, PartLayout::kValue, 2, 64, 64}, 1);
  const TestPart more = MakePart({LaneType::kQ8, PartLayout::kValue, 2, 16, 64}, 1);
  EXPECT_TRUE(Pack(more.view(), Build({blocks, more}).get()).ok());
}

TEST(Dictionary, CountsItsMemory) {
  const auto dictionary = Build(RepeatingPages(8, 50, 1));
  EXPECT_GE(dictionary->bytes(), 50 * kRowBytes + 32 * 3);
  EXPECT_LE(dictionary->bytes(), 50 * kRowBytes + 32 * 3 + 1024);
}

TEST(Dictionary, EveryChangedByteAndEveryLengthIsRefused) {
  const std::vector<std::byte> good = Build(RepeatingPages(1, 5, 1))->Serialize();
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    const Status status = Dictionary::Parse(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << at;
    EXPECT_TRUE(status.message().starts_with("dictionary: ")) << status.message();
    bad.assign(good.begin(), good.begin() + static_cast<ptrdiff_t>(at));
    EXPECT_FALSE(Dictionary::Parse(bad).ok()) << at;
  }
}

TEST(Dictionary, RefusesSamplesThatDoNotBelongTogether) {
  EXPECT_EQ(BuildDictionary({}).status().code(), StatusCode::kInvalidArgument);
  const TestPart a = MakePart(kShape, 1);
  PartShape other = kShape;
  other.head_dim = 64;
  const TestPart b = MakePart(other, 1);
  const PartView samples[] = {a.view(), b.view()};
  EXPECT_NE(BuildDictionary(samples).status().message().find("sample 1"), std::string::npos);
}

}  // namespace dictionary_test
}  // namespace varve::store
