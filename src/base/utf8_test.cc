#include "base/utf8.h"

#include <gtest/gtest.h>

namespace varve {
namespace utf8_test {

TEST(Utf8, KnowsEveryCodePoint) {
  for (unsigned code_point = 0; code_point < 0x110000; code_point += code_point < 0x3000 ? 1 : 61) {
    std::string text;
    if (code_point < 0x800) {
      AppendTwoByteUtf8(code_point, &text);
    } else {
      if (code_point >= 0x10000) text.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
      text.push_back(static_cast<char>(code_point >= 0x10000 ? 0x80 | ((code_point >> 12) & 0x3F)
                                                             : 0xE0 | (code_point >> 12)));
      text.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
      text.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    }
    const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
    EXPECT_EQ(ReadUtf8(text + "z").valid, !surrogate) << code_point;
    if (surrogate) continue;
    EXPECT_EQ(ReadUtf8(text + "z").bytes, text.size()) << code_point;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      EXPECT_TRUE(ReadUtf8(std::string_view(text).substr(0, cut)).unfinished) << code_point;
    }
  }
}

TEST(Utf8, TellsTextFromOtherBytes) {
  for (const char* text : {"", "plain", "Grüße 世界 🌍", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  }
  // A continuation alone, an overlong slash, a surrogate, beyond U+10FFFF, one that ends early.
  for (const char* text : {"a\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "a\xE4\xB8"}) {
    EXPECT_FALSE(IsValidUtf8(text)) << text;
  }
}

TEST(Utf8, CutsInFrontOfACharacter) {
  EXPECT_EQ(Utf8Prefix("a世b", 5), "a世b");
  EXPECT_EQ(Utf8Prefix("a世b", 4), "a世");
  EXPECT_EQ(Utf8Prefix("a世b", 3), "a");
  EXPECT_EQ(Utf8Prefix("a世b", 2), "a");
  EXPECT_EQ(Utf8Prefix("世", 2), "");
  EXPECT_EQ(Utf8Prefix("", 0), "");
}

TEST(Utf8, TakesWholeCharactersFromAStream) {
  std::string pending = "a\xE4\xB8";
  EXPECT_EQ(TakeWholeUtf8(&pending, false), "a");
  pending += "\x96\xFF";
  EXPECT_EQ(TakeWholeUtf8(&pending, false), "世\uFFFD");
  EXPECT_EQ(pending, "");
  pending = "\xE4\xB8";
  EXPECT_EQ(TakeWholeUtf8(&pending, true), "\uFFFD");
  EXPECT_EQ(pending, "");
}

}  // namespace utf8_test
}  // namespace varve
