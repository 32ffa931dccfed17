#include "base/nearest_word.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace nearest_word_test {

TEST(TypingDistance, CountsMistakes) {
  EXPECT_EQ(TypingDistance("run", "run"), 0);
  EXPECT_EQ(TypingDistance("RUN", "run"), 0);
  EXPECT_EQ(TypingDistance("rnu", "run"), 1);
  EXPECT_EQ(TypingDistance("h20", "h2o"), 1);
  EXPECT_EQ(TypingDistance("promt", "prompt"), 1);
  EXPECT_EQ(TypingDistance("treads", "threads"), 1);
  EXPECT_EQ(TypingDistance("", "abc"), 3);
  EXPECT_EQ(TypingDistance("abc", ""), 3);
  EXPECT_EQ(TypingDistance("kitten", "sitting"), 3);
}

TEST(NearestWord, IsNearOrNone) {
  const std::string_view words[] = {"run", "eval", "gate", "q8_0", "q4_0", "transcribe"};
  EXPECT_EQ(NearestWord("rnu", words), "run");
  EXPECT_EQ(NearestWord("Gate", words), "gate");
  EXPECT_EQ(NearestWord("trancsribe", words), "transcribe");
  EXPECT_EQ(NearestWord("q8_1", words), "q8_0");
  EXPECT_EQ(NearestWord("zebra", words), "");
  EXPECT_EQ(NearestWord("x", words), "");
  EXPECT_EQ(NearestWord("", words), "");
  EXPECT_EQ(NearestWord(std::string(100000, 'a'), words), "");
  EXPECT_EQ(NearestWord("run", {}), "");
}

TEST(DidYouMean, IsTheEndOfASentence) {
  const std::string_view words[] = {"h2o", "window"};
  EXPECT_EQ(DidYouMean("h20", words), "; did you mean \"h2o\"?");
  EXPECT_EQ(DidYouMean("something", words), "");
}

}  // namespace nearest_word_test
}  // namespace varve
