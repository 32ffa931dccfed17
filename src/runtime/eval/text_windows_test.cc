#include "runtime/eval/text_windows.h"

#include <gtest/gtest.h>

#include <numeric>

namespace varve {
namespace text_windows_test {

using Windows = std::vector<std::vector<int32_t>>;

std::vector<int32_t> Tokens(int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

TEST(TextWindows, AreConsecutiveAndOfOneLength) {
  EXPECT_EQ(*CutWindows(Tokens(11), 4, -1, 0), (Windows{{1, 2, 3, 4}, {5, 6, 7, 8}}));
  EXPECT_EQ(*CutWindows(Tokens(8), 4, -1, 0), (Windows{{1, 2, 3, 4}, {5, 6, 7, 8}}));
}

TEST(TextWindows, EachBeginsWithBosAndNoTokenOfTheTextIsLost) {
  EXPECT_EQ(*CutWindows(Tokens(7), 4, 0, 0), (Windows{{0, 1, 2, 3}, {0, 4, 5, 6}}));
  EXPECT_EQ(*CutWindows(Tokens(3), 4, 0, 0), (Windows{{0, 1, 2, 3}}));
}

TEST(TextWindows, AreAsManyAsAskedFor) {
  EXPECT_EQ(CutWindows(Tokens(100), 10, -1, 3)->size(), 3u);
  EXPECT_EQ(CutWindows(Tokens(25), 10, -1, 3)->size(), 2u);
}

TEST(TextWindows, RefusesWhatDoesNotFillOne) {
  const auto message = [](const auto& result) { return result.status().message(); };
  EXPECT_EQ(message(CutWindows(Tokens(9), 1, -1, 0)), "ctx 1 < 2: a window has no token to score");
  EXPECT_EQ(message(CutWindows({}, 4, -1, 0)), "the text is empty");
  EXPECT_EQ(message(CutWindows(Tokens(510), 512, 0, 0)),
            "the text has 510 tokens, one window needs 511 (ctx 512 with the BOS token)");
  EXPECT_EQ(message(CutWindows(Tokens(511), 512, -1, 0)),
            "the text has 511 tokens, one window needs 512 (ctx 512)");
}

}  // namespace text_windows_test
}  // namespace varve
