// The frames byte for byte: golden bytes written by hand, and everything that may be wrong with
// them.

#include "store/gear_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "store/part_testing.h"

namespace varve::store {
namespace gear_frame_test {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(GearStream, PredictorsAreThoseOfTheFormat) {
  const std::vector<std::byte> bytes = Bytes({10, 12, 9, 255, 0, 7});
  EXPECT_EQ(GearPredict(GearPredictor::kRaw, bytes), bytes);
  EXPECT_EQ(GearPredict(GearPredictor::kDeltaSeq, bytes), Bytes({10, 2, 253, 246, 1, 7}));
  EXPECT_EQ(GearPredict(GearPredictor::kXorSeq, bytes), Bytes({10, 6, 5, 246, 255, 7}));
  EXPECT_EQ(GearPredict(GearPredictor::kPairDelta, bytes), Bytes({10, 2, 9, 246, 0, 7}));
}

TEST(GearStream, PredictorsGoBothWays) {
  for (const GearPredictor predictor : GearPredictorSet::Keys().predictors) {
    for (const int dim : {1, 2, 3, 100}) {
      const std::vector<std::byte> bytes =
          MakeNoise({LaneType::kF16, PartLayout::kRows, 1, 1, dim}, 3).bytes;
      std::vector<std::byte> back = GearPredict(predictor, bytes);
      GearUnpredict(predictor, back);
      EXPECT_EQ(back, bytes);
    }
  }
}

TEST(GearStream, RunLengthsAreThoseOfTheFormat) {
  EXPECT_EQ(GearRleEncode({}), Bytes({}));
  EXPECT_EQ(GearRleEncode(Bytes({1, 2, 3})), Bytes({2, 1, 2, 3}));
  EXPECT_EQ(GearRleEncode(Bytes({7, 7, 7})), Bytes({2, 7, 7, 7}));  // too short for a run
  EXPECT_EQ(GearRleEncode(Bytes({7, 7, 7, 7})), Bytes({128, 7}));
  EXPECT_EQ(GearRleEncode(Bytes({1, 7, 7, 7, 7, 7, 2})), Bytes({0, 1, 129, 7, 0, 2}));
  EXPECT_EQ(GearRleEncode(std::vector<std::byte>(131)), Bytes({255, 0}));
  EXPECT_EQ(GearRleEncode(std::vector<std::byte>(132)), Bytes({255, 0, 0, 0}));
}

TEST(GearStream, RunLengthsThatDoNotFitAreRefused) {
  std::vector<std::byte> out(4);
  EXPECT_TRUE(GearRleDecode(Bytes({128, 7}), out).ok());
  EXPECT_FALSE(GearRleDecode(Bytes({129, 7}), out).ok());        // five
  EXPECT_FALSE(GearRleDecode(Bytes({2, 1, 2, 3}), out).ok());    // three
  EXPECT_FALSE(GearRleDecode(Bytes({128}), out).ok());           // which byte?
  EXPECT_FALSE(GearRleDecode(Bytes({3, 1, 2, 3}), out).ok());    // one is missing
  EXPECT_FALSE(GearRleDecode(Bytes({128, 7, 0, 1}), out).ok());  // one too many
  EXPECT_FALSE(GearRleDecode({}, out).ok());
}

TEST(GearFrame, WordsOf16BitsHaveThisForm) {
  // Low bytes 1 2 3 4 5: differences 1 1 1 1 1 are one run. High bytes: 0x3C five times.
  const std::vector<std::byte> words = Bytes({1, 0x3C, 2, 0x3C, 3, 0x3C, 4, 0x3C, 5, 0x3C});
  const std::vector<std::byte> frame = Bytes({
      5, 0, 0, 0,                               // word_count
      1, 0, 5, 0, 0, 0, 2, 0, 0, 0, 129, 1,     // delta_seq, RLE, 5 bytes from 2
      0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 129, 0x3C,  // raw, RLE
  });
  EXPECT_EQ(*GearEncode(words, 2, GearPredictorSet::Keys()), frame);
  EXPECT_EQ(*GearDecode(frame, 2, 10), words);
}

TEST(GearFrame, WordsOf32BitsHaveThisForm) {
  const std::vector<std::byte> words = Bytes({9, 8, 7, 6});
  const std::vector<std::byte> frame = Bytes({
      1, 0, 0, 0,                          // word_count
      0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 9,  // raw, RLE, one literal
      0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 8,  //
      0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 7,  //
      0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 6,  //
  });
  EXPECT_EQ(*GearEncode(words, 4, GearPredictorSet::Values()), frame);
  EXPECT_EQ(*GearDecode(frame, 4, 4), words);
}

TEST(GearFrame, XorAndPairsAreReadToo) {
  const std::vector<std::byte> frame = Bytes({
      4, 0, 0, 0,                                      // word_count
      2, 0, 4, 0, 0, 0, 5, 0, 0, 0, 3, 10, 6, 5, 246,  // xor_seq of 10 12 9 255
      3, 0, 4, 0, 0, 0, 5, 0, 0, 0, 3, 10, 2, 9, 246,  // pair_delta of the same
  });
  EXPECT_EQ(*GearDecode(frame, 2, 8), Bytes({10, 10, 12, 12, 9, 9, 255, 255}));
}

TEST(GearFrame, RowsComeBackAndTheSmallestStreamWins) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16, LaneType::kF32}) {
    const TestPart part = MakePart({lane, PartLayout::kRows, 2, 64, 64}, 1);
    const size_t width = lane == LaneType::kF32 ? 4 : 2;
    const auto all = GearEncode(part.bytes, width, GearPredictorSet::Keys());
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(*GearDecode(*all, width, part.bytes.size()), part.bytes);
    for (const GearPredictor one : GearPredictorSet::Keys().predictors) {
      EXPECT_LE(all->size(), GearEncode(part.bytes, width, {.predictors = {one}})->size());
    }
    EXPECT_LT(all->size(), part.bytes.size());
  }
}

TEST(GearFrame, WithoutZstdRunLengthsAreLeft) {
  GearPredictorSet set = GearPredictorSet::Values();
  set.zstd = false;
  // A period of two: nothing for RLE, much for zstd.
  std::vector<std::byte> words(4000);
  for (size_t i = 0; i < words.size(); i += 4) words[i] = words[i + 1] = std::byte{1};
  const auto with = GearEncode(words, 2, GearPredictorSet::Values());
  const auto without = GearEncode(words, 2, set);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ((*with)[5], std::byte{1});  // codec of the low bytes
  EXPECT_EQ((*without)[5], std::byte{0});
  EXPECT_LT(with->size(), without->size());
  EXPECT_EQ(*GearDecode(*without, 2, words.size()), words);
}

TEST(GearFrame, EmptyFramesAreFrames) {
  const auto frame = GearEncode({}, 2, GearPredictorSet::Values());
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->size(), 4 + 2 * kGearStreamHeaderBytes);
  EXPECT_TRUE(GearDecode(*frame, 2, 0)->empty());
}

TEST(GearFrame, EveryWrongFieldIsNamed) {
  const std::vector<std::byte> good =
      *GearEncode(Bytes({1, 2, 1, 2, 1, 2, 1, 2}), 2, GearPredictorSet::Values());
  const auto expect = [&](size_t at, int value, const std::string& text) {
    std::vector<std::byte> bad = good;
    bad[at] = static_cast<std::byte>(value);
    const Status status = GearDecode(bad, 2, 8).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << text;
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  expect(0, 5, "word_count 5 > 4");
  expect(0, 3, "raw_len 4 is not 3");
  expect(4, 4, "mode 4 > 3");
  expect(5, 2, "codec 2 > 1");
  expect(6, 9, "raw_len 9 is not 4");
  expect(10, 1, "gear rle");
  expect(13, 1, "payload needs");
  expect(14, 129, "5 bytes at 0 of 4");
  for (size_t length = 0; length < good.size(); ++length) {
    const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(GearDecode(cut, 2, 8).ok()) << length;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(GearDecode(longer, 2, 8).status().message().find("follow its end"), std::string::npos);
  EXPECT_EQ(GearDecode(good, 3, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(GearEncode(Bytes({1}), 2, GearPredictorSet::Keys()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(GearFrame, PredictorSetsAreReadFromText) {
  EXPECT_EQ(ParseGearPredictors("raw,delta_seq,xor_seq,pair_delta")->predictors,
            GearPredictorSet::Keys().predictors);
  EXPECT_EQ(ParseGearPredictors("xor_seq")->predictors.size(), 1u);
  for (const char* text : {"", "raw,", "delta", "raw;xor_seq"}) {
    EXPECT_EQ(ParseGearPredictors(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace gear_frame_test
}  // namespace varve::store
