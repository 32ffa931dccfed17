#include "runtime/whisper/compression_ratio.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace compression_ratio_test {
namespace {

// The expected values are Python's: len(text) / len(zlib.compress(text)).
TEST(CompressionRatio, IsThatOfZlib) {
  const std::string sentence = "the cat sat on the mat and the dog sat on the log. ";
  EXPECT_DOUBLE_EQ(CompressionRatio(sentence), 51.0 / 41.0);
  std::string repeated;
  for (int i = 0; i < 5; ++i) repeated += sentence;
  EXPECT_DOUBLE_EQ(CompressionRatio(repeated), 255.0 / 45.0);
}

TEST(CompressionRatio, OfShortAndEmptyTextsIsLow) {
  EXPECT_EQ(CompressionRatio(""), 0.0);
  EXPECT_DOUBLE_EQ(CompressionRatio("a"), 1.0 / 9.0);
}

}  // namespace
}  // namespace compression_ratio_test
}  // namespace varve
