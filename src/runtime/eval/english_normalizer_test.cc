#include "runtime/eval/english_normalizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "runtime/eval/english_numbers.h"
#include "runtime/eval/english_spelling.h"
#include "runtime/eval/latin_letters.h"
#include "runtime/eval/text_pattern.h"
#include "tests/test_data.h"

namespace varve {
namespace english_normalizer_test {
namespace {

// Made by tools/make_english_normalizer_golden.py with OpenAI's package.
TEST(NormalizeEnglish, GivesWhatWhispersNormaliserGives) {
  std::ifstream file(TestDataPath("eval/english_normalizer.tsv"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos) << line;
    EXPECT_EQ(NormalizeEnglish(line.substr(0, tab)), line.substr(tab + 1)) << line;
  }
  EXPECT_GE(lines, 120);
}

TEST(NormalizeEnglish, TakesAnyBytes) {
  EXPECT_EQ(NormalizeEnglish(""), "");
  EXPECT_EQ(NormalizeEnglish(" \n\t\x1C\x1F "), "");
  EXPECT_EQ(NormalizeEnglish("a\xFF\xC3 b\x80"), "a b");
  EXPECT_EQ(NormalizeEnglish("One\nline\x1Cmore"), "one line more");
}

TEST(NormalizeEnglishNumbers, HaveNoLargestNumber) {
  EXPECT_EQ(NormalizeEnglishNumbers("123456789012345678901234567890 and 00012"),
            "123456789012345678901234567890 and 12");
  EXPECT_EQ(NormalizeEnglishNumbers("nine hundred ninety nine decillion"),
            "999" + std::string(33, '0'));
  // The last three digits are multiplied: the rest is taken as said before them.
  EXPECT_EQ(NormalizeEnglishNumbers("99999999999999999999 hundred"), "100000000000000098900");
}

TEST(AmericanSpelling, KnowsTheListAndLeavesOtherWords) {
  EXPECT_EQ(AmericanSpelling("centre"), "center");
  EXPECT_EQ(AmericanSpelling("centres"), "centers");
  EXPECT_EQ(AmericanSpelling("oesophagus"), "esophagus");
  EXPECT_EQ(AmericanSpelling("tranquillisers"), "tranquilizers");
  EXPECT_EQ(AmericanSpelling("zebra"), "zebra");
  EXPECT_EQ(AmericanSpelling(""), "");
}

TEST(FoldLatinLetters, TakesAccentsAndLeavesTheRest) {
  EXPECT_EQ(FoldLatinLetters("naïve Œuvre ½ … ﬁ"), "naive Œuvre 1⁄2 ... fi");
  EXPECT_EQ(FoldLatinLetters("！～ａ１"), "!~a1");
  EXPECT_EQ(FoldLatinLetters("日本 e\u0301 \uFF5F\uFF00"), "日本 e\u0301 \uFF5F\uFF00");
}

TEST(TextPattern, ReplacesEveryMatchHoweverLongTheResult) {
  std::string text = "aXbXc";
  TextPattern("X", std::string(100, '-')).Replace(text);
  EXPECT_EQ(text, "a" + std::string(100, '-') + "b" + std::string(100, '-') + "c");
  text = "$5";
  TextPattern("\\$(\\d)", "$1$$").Replace(text);
  EXPECT_EQ(text, "5$");
  TextPattern("nothing", "x").Replace(text);
  EXPECT_EQ(text, "5$");
}

}  // namespace
}  // namespace english_normalizer_test
}  // namespace varve
